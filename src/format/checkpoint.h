// A checkpoint as the model sees it: named tensors and metadata, whatever container they lie in.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "format/mapped_file.h"

namespace orlop {

struct FileTensor {
  std::string name;
  FileType type = FileType::f32;
  std::vector<int64_t> shape;  // row-major, slowest first (GGUF's order reversed)
  std::span<const std::byte> data;
  std::shared_ptr<MappedFile> file;
};

// GGUF metadata. Arrays of strings/numbers are kept typed.
using MetaArray = std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;
using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string, MetaArray>;

class Checkpoint {
 public:
  enum class Kind { hugging_face, gguf };
  // Opens a checkpoint folder or a .gguf file and checks everything that can be checked without
  // reading tensor data. Errors name file, tensor and reason. part: where in a file the GGUF lies.
  static std::shared_ptr<Checkpoint> open(const std::string& path, LoadMode mode,
                                          FileRange part = {});

  Kind kind = Kind::gguf;
  std::string path;
  FileRange part;
  std::vector<FileTensor> tensors;
  std::unordered_map<std::string, size_t> index;  // name -> tensors
  std::vector<std::shared_ptr<MappedFile>> files;

  // gguf
  uint32_t gguf_version = 0;
  std::unordered_map<std::string, MetaValue> meta;

  // hugging_face: parsed config.json, generation_config.json (null if absent); texts of tokenizer
  // files ("" if absent).
  Json config, generation_config;
  std::string tokenizer_json, tokenizer_config_json;
  std::string chat_template;  // either kind; "" if absent

  const FileTensor* find(std::string_view name) const;
};

}  // namespace orlop
