#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "../check.h"
#include "builders.h"
#include "format/mapped_file.h"

using namespace orlop;
using namespace orlop::test;

static std::string text_of(const MappedFile& file) {
  const auto b = file.bytes();
  return std::string(reinterpret_cast<const char*>(b.data()), b.size());
}

TEST(both_modes_give_the_bytes) {
  TempDir dir;
  std::string content;
  for (int i = 0; i < 100000; ++i) content += static_cast<char>(i * 31 + i / 256);
  const std::string path = dir.write("a", content);
  for (LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    const auto file = MappedFile::open(path, mode);
    CHECK(file->path() == path);
    CHECK(text_of(*file) == content);
  }
}

TEST(a_part_is_a_file_of_its_own) {
  TempDir dir;
  std::string content;
  for (int i = 0; i < 50000; ++i) content += static_cast<char>(i * 31 + i / 256);
  const std::string path = dir.write("a", content);
  for (LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    for (const FileRange part : {FileRange{0, 50000}, FileRange{64, 100}, FileRange{8192, 1},
                                 FileRange{12345, 20000}, FileRange{49999, 1}}) {
      const auto file = MappedFile::open(path, mode, part);
      CHECK(text_of(*file) == content.substr(part.offset, part.bytes));
      file->will_need(file->bytes());
      file->drop(file->bytes());  // of a mapping: read again from the file
      if (mode == LoadMode::mmap) CHECK(text_of(*file) == content.substr(part.offset, part.bytes));
    }
    CHECK(text_of(*MappedFile::open(path, mode, {128, 0})) == content.substr(128));
    CHECK(MappedFile::open(path, mode, {50000, 0})->bytes().empty());
    constexpr uint64_t huge = UINT64_MAX;
    for (const FileRange part : {FileRange{50001, 0}, FileRange{50000, 1}, FileRange{1, 50000},
                                 FileRange{0, 50001}, FileRange{huge, huge}, FileRange{2, huge},
                                 FileRange{huge, 2}})
      CHECK_THROWS(invalid_argument, "has 50000 bytes; a part from byte",
                   MappedFile::open(path, mode, part));
  }
}

TEST(read_mode_keeps_bytes_of_a_file_that_changes_later) {
  TempDir dir;
  const std::string path = dir.write("a", std::string(50000, 'x'));
  const auto file = MappedFile::open(path, LoadMode::read);
  std::filesystem::resize_file(path, 10);
  CHECK(text_of(*file) == std::string(50000, 'x'));
}

TEST(an_empty_file_is_empty) {
  TempDir dir;
  const std::string path = dir.write("a", "");
  for (LoadMode mode : {LoadMode::mmap, LoadMode::read})
    CHECK(MappedFile::open(path, mode)->bytes().empty());
}

TEST(what_is_no_regular_file_is_refused) {
  TempDir dir;
  const std::string fifo = dir.file("pipe");
  CHECK(mkfifo(fifo.c_str(), 0600) == 0);
  for (LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
    CHECK_THROWS(io, "is a directory", MappedFile::open(dir.path(), mode));
    CHECK_THROWS(io, "is a pipe", MappedFile::open(fifo, mode));  // and does not wait for a writer
    CHECK_THROWS(io, "is a device", MappedFile::open("/dev/zero", mode));
    CHECK_THROWS(not_found, "absent", MappedFile::open(dir.file("absent"), mode));
    CHECK_THROWS(not_found, "cannot be opened", MappedFile::open(dir.write("f", "x") + "/y", mode));
    CHECK_THROWS(invalid_argument, "empty", MappedFile::open("", mode));
    CHECK_THROWS(invalid_argument, "NUL", MappedFile::open(std::string("a\0b", 3), mode));
  }
}

TEST(a_file_without_permission) {
  TempDir dir;
  const std::string path = dir.write("a", "x");
  chmod(path.c_str(), 0);
  if (geteuid() == 0) {
    std::printf("skipped 1: a file without permission (root may read everything)\n");
    return;
  }
  CHECK_THROWS(io, "cannot be opened", MappedFile::open(path, LoadMode::mmap));
}

TEST(a_file_shorter_than_it_says) {
  // Attributes in sysfs say one page and hold less: a read that ends early, every time.
  const char* path = "/sys/kernel/mm/transparent_hugepage/enabled";
  struct stat st {};
  if (stat(path, &st) != 0 || st.st_size < 1000) {
    std::printf("skipped 1: no file that is shorter than its size (sysfs)\n");
    return;
  }
  CHECK_THROWS(io, "truncated while being read", MappedFile::open(path, LoadMode::read));
}

TEST(a_file_that_shrinks_and_grows_while_read) {
  TempDir dir;
  const size_t size = 8 << 20;
  const std::string path = dir.write("a", std::string(size, 'x'));
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    while (!stop) {
      if (truncate(path.c_str(), 100)) break;
      if (truncate(path.c_str(), size)) break;
    }
  });
  int whole = 0, typed = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      const auto file = MappedFile::open(path, LoadMode::read);
      whole += file->bytes().size() == size || file->bytes().size() == 100;
    } catch (const Error& e) {
      typed += e.status() == Status::io;
    }
  }
  stop = true;
  changer.join();
  CHECK(whole + typed == 200);
}

static size_t resident_pages(std::span<const std::byte> bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in((bytes.size() + page - 1) / page);
  if (mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), in.data())) return SIZE_MAX;
  size_t n = 0;
  for (unsigned char c : in) n += c & 1;
  return n;
}

TEST(drop_gives_back_whole_pages_only) {
  TempDir dir;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::string path = dir.write("a", std::string(page * 8 + 100, 'x'));
  const auto file = MappedFile::open(path, LoadMode::read);
  const auto all = file->bytes();
  CHECK(resident_pages(all) == 9);
  file->drop(all.subspan(1, page));  // no whole page
  CHECK(resident_pages(all) == 9);
  file->drop({});
  file->drop(all.subspan(page + 1, page * 2));  // page 2 alone is whole
  CHECK(resident_pages(all) == 8);
  CHECK(all[page * 2 - 1] == std::byte{'x'} && all[page * 3] == std::byte{'x'});
  file->drop(all.subspan(page * 7));  // the last, partial page belongs to the file alone
  CHECK(resident_pages(all) == 6);
  file->drop(all);
  CHECK(resident_pages(all) == 0);

  const auto mapped = MappedFile::open(path, LoadMode::mmap);
  mapped->will_need(mapped->bytes().subspan(5, page));
  mapped->drop(mapped->bytes());
  CHECK(text_of(*mapped) == std::string(page * 8 + 100, 'x'));  // read again from the file
}

TEST(copies_are_aligned) {
  const std::string s = "hello";
  const auto copy = MappedFile::copy("name", as_span(s));
  CHECK(text_of(*copy) == s);
  CHECK(reinterpret_cast<uintptr_t>(copy->bytes().data()) % 4096 == 0);
  CHECK(MappedFile::copy("name", {})->bytes().empty());
}

int main(int argc, char** argv) { return test_main(argc, argv); }
