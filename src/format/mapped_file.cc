#include "format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "base/checked.h"
#include "base/error.h"

namespace orlop {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// std::strerror is not thread-safe; this is.
std::string reason(int error) { return std::generic_category().message(error); }

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

// Anonymous pages: zeroed on demand, page-aligned, given back whole.
std::byte* private_pages(size_t size, const std::string& path) {
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    fail(Status::out_of_memory, path, ": no memory for its ", size, " bytes: ", reason(errno));
  return static_cast<std::byte*>(p);
}

size_t page_size() {
  static const size_t size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path, LoadMode mode,
                                             FileRange part) {
  if (path.empty()) fail(Status::invalid_argument, "the path of a file is empty");
  if (path.find('\0') != std::string::npos)
    fail(Status::invalid_argument, "a path holds a NUL byte: ", path.c_str());

  // O_NONBLOCK: opening a pipe must not wait for its writer.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(absent ? Status::not_found : Status::io, path, ": cannot be opened: ", reason(error));
  }
  struct stat st {};
  if (::fstat(file.fd, &st) != 0)
    fail(Status::io, path, ": its size cannot be read: ", reason(errno));
  if (!S_ISREG(st.st_mode))
    fail(Status::io, path, ": is ", kind_of(st.st_mode), ", a regular file is needed");

  std::shared_ptr<MappedFile> out(new MappedFile);
  out->path_ = path;
  out->mode_ = mode;
  const size_t file_size = checked_cast<size_t>(st.st_size, path.c_str());
  if (part.offset > file_size || part.bytes > file_size - part.offset)
    fail(Status::invalid_argument, path, ": has ", file_size, " bytes; a part from byte ",
         part.offset, " with ", part.bytes, " bytes is not all there");
  const size_t size = part.bytes ? static_cast<size_t>(part.bytes)
                                 : file_size - static_cast<size_t>(part.offset);
  if (size == 0) return out;

  if (mode == LoadMode::mmap) {
    const size_t before = static_cast<size_t>(part.offset) & (page_size() - 1);
    void* p = ::mmap(nullptr, before + size, PROT_READ, MAP_PRIVATE, file.fd,
                     static_cast<off_t>(part.offset - before));
    if (p == MAP_FAILED) {
      const int error = errno;
      fail(error == ENOMEM ? Status::out_of_memory : Status::io, path, ": its ", size,
           " bytes cannot be mapped: ", reason(error));
    }
    out->data_ = static_cast<const std::byte*>(p) + before;
    out->size_ = size;
    out->before_ = before;
    return out;
  }

  std::byte* data = private_pages(size, path);
  out->data_ = data;  // owned from here on: a throw unmaps it
  out->size_ = size;
  size_t done = 0;
  while (done < size) {
    // Linux reads at most 0x7ffff000 bytes a call.
    const size_t want = std::min<size_t>(size - done, size_t{1} << 30);
    const ssize_t n =
        ::pread(file.fd, data + done, want, static_cast<off_t>(part.offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail(Status::io, path, ": reading failed at byte ", done, " of ", size, ": ",
           reason(errno));
    }
    if (n == 0)
      fail(Status::io, path, ": ended at byte ", done, " of ", size,
           " (it was truncated while being read)");
    done += static_cast<size_t>(n);
  }
  ::mprotect(data, size, PROT_READ);  // as a mapping is: a stray write is found at once
  return out;
}

std::shared_ptr<MappedFile> MappedFile::copy(const std::string& path,
                                             std::span<const std::byte> bytes) {
  std::shared_ptr<MappedFile> out(new MappedFile);
  out->path_ = path;
  out->mode_ = LoadMode::read;
  if (bytes.empty()) return out;
  std::byte* data = private_pages(bytes.size(), path);
  out->data_ = data;
  out->size_ = bytes.size();
  std::memcpy(data, bytes.data(), bytes.size());
  return out;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_ - before_), before_ + size_);
}

namespace {

// Advises on the part of `range` that lies in [data, data + size), rounded to pages: inwards for
// dropping (a page shared with a neighbour stays), outwards otherwise.
void advise(const std::byte* data, size_t size, std::span<const std::byte> range, bool inwards,
            int advice) noexcept {
  if (!data || range.empty()) return;
  const uintptr_t file_begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t file_end = file_begin + size;
  uintptr_t begin = std::max(reinterpret_cast<uintptr_t>(range.data()), file_begin);
  uintptr_t end = reinterpret_cast<uintptr_t>(range.data() + range.size());
  const uintptr_t mask = page_size() - 1;
  // The bytes after the file's end in its last page belong to nobody.
  const uintptr_t last = (file_end + mask) & ~mask;
  if (end >= file_end) end = last;
  begin = inwards ? (begin + mask) & ~mask : begin & ~mask;
  end = inwards ? end & ~mask : std::min((end + mask) & ~mask, last);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void MappedFile::drop(std::span<const std::byte> range) const noexcept {
  advise(data_, size_, range, true, MADV_DONTNEED);
}

void MappedFile::will_need(std::span<const std::byte> range) const noexcept {
  if (mode_ == LoadMode::mmap) advise(data_, size_, range, false, MADV_WILLNEED);
}

}  // namespace orlop
