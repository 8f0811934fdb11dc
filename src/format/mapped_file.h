// A file's bytes, mapped (default) or read into private memory (for files that may be truncated or
// replaced while in use).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orlop {

enum class LoadMode { mmap, read };

// A part of a file, as if it were a file of its own: a model inside an executable.
struct FileRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: up to the end
  bool whole() const { return offset == 0 && bytes == 0; }
};

class MappedFile {
 public:
  // Error(not_found | io | out_of_memory) names the path. Only regular files. An empty file is not
  // an error here: bytes() is empty, and the reader of the format says what is missing.
  // Of a part, nothing outside it is in bytes(); Error(invalid_argument) if the file is shorter.
  static std::shared_ptr<MappedFile> open(const std::string& path, LoadMode mode,
                                          FileRange part = {});
  // Private memory that holds a copy of `bytes`, page-aligned; `path` is kept for messages.
  static std::shared_ptr<MappedFile> copy(const std::string& path,
                                          std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // The whole pages inside this range will not be used again: give the memory back.
  void drop(std::span<const std::byte> range) const noexcept;
  // The range will be read soon: start reading it from disk.
  void will_need(std::span<const std::byte> range) const noexcept;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t before_ = 0;  // mapped bytes before data_: a mapping begins with a page
  LoadMode mode_ = LoadMode::mmap;
};

}  // namespace orlop
