// What model this is, as hashes of what its files hold: a saved state fits one model alone.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "format/checkpoint.h"

namespace orlop::api {

class ModelIdentity {
 public:
  ModelIdentity() = default;
  // At load: remembers the files as they are and hashes the tokenizer.
  explicit ModelIdentity(const Checkpoint& checkpoint);
  ModelIdentity(ModelIdentity&& o) noexcept
      : path_(std::move(o.path_)),
        part_(o.part_),
        files_(std::move(o.files_)),
        tokenizer_(std::move(o.tokenizer_)) {}
  ModelIdentity& operator=(ModelIdentity&& o) noexcept {
    path_ = std::move(o.path_);
    part_ = o.part_;
    files_ = std::move(o.files_);
    tokenizer_ = std::move(o.tokenizer_);
    return *this;
  }

  // Of every tensor: name, type, shape and bytes. Reads all weights at the first call, from any
  // thread; Error(io) if the files are not those that were loaded.
  const std::string& model() const;
  const std::string& tokenizer() const { return tokenizer_; }

 private:
  struct File {
    std::string path;
    uint64_t device, inode, size;
    int64_t modified_s, modified_ns;
    bool operator==(const File&) const = default;
  };
  static File look(const std::string& path);
  void check_files() const;

  std::string path_;
  FileRange part_;
  std::vector<File> files_;
  std::string tokenizer_;
  mutable std::mutex mutex_;
  mutable std::string model_;  // under mutex_
};

}  // namespace orlop::api
