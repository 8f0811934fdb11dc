// The four tokenizers that the golden files know, from files that are fetched and not committed
// (scripts/fetch_tokenizers.py, scripts/fetch_model.py). A test that lacks one says so and counts it.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "base/json.h"
#include "format/checkpoint.h"
#include "../check.h"
#include "text/tokenizer.h"

namespace orlop::test {

inline const char* const tokenizer_names[] = {"smollm2", "llama2", "llama3_1", "qwen3"};

inline std::string folder(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : std::string(ORLOP_SOURCE_ROOT) + "/" + otherwise;
}
inline std::string cache_path(const std::string& name) {
  return folder("ORLOP_CACHE", ".cache") + "/" + name;
}
inline std::string data_path(const std::string& name) {
  return folder("ORLOP_TEST_DATA", "tests/data") + "/" + name;
}
inline bool read_file(const std::string& path, std::string& out) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  out.assign(std::istreambuf_iterator<char>(in), {});
  return true;
}

inline int& skipped() {
  static int n = 0;
  return n;
}
inline void skip(const std::string& what) {
  std::printf("skipped: %s\n", what.c_str());
  ++skipped();
}
// test_main, with the skipped ones counted.
inline int text_main(int argc, char** argv) {
  const int rc = test_main(argc, argv);
  if (skipped()) std::printf("%d skipped\n", skipped());
  return rc;
}

template <class T>
const std::vector<T>& meta_list(const Checkpoint& file, const char* key) {
  static const std::vector<T> none;
  const auto it = file.meta.find(key);
  if (it == file.meta.end()) return none;
  return std::get<std::vector<T>>(std::get<MetaArray>(it->second));
}
inline GgufTokenizer gguf_parts(const Checkpoint& file) {
  GgufTokenizer parts;
  const auto get = [&](const char* key, auto& out) {
    const auto it = file.meta.find(std::string("tokenizer.ggml.") + key);
    if (it == file.meta.end()) return;
    std::visit(
        [&](const auto& v) {
          using V = std::decay_t<decltype(v)>;
          using Out = std::decay_t<decltype(out)>;
          if constexpr (std::is_same_v<Out, std::string>) {
            if constexpr (std::is_same_v<V, std::string>) out = v;
          } else if constexpr (std::is_arithmetic_v<V>) {
            out = static_cast<std::conditional_t<std::is_same_v<Out, std::optional<bool>>, bool,
                                                 int32_t>>(v);
          }
        },
        it->second);
  };
  get("model", parts.model);
  get("pre", parts.pre);
  get("bos_token_id", parts.bos);
  get("eos_token_id", parts.eos);
  get("unknown_token_id", parts.unk);
  get("padding_token_id", parts.pad);
  get("add_bos_token", parts.add_bos);
  get("add_eos_token", parts.add_eos);
  get("add_space_prefix", parts.add_space_prefix);
  parts.tokens = meta_list<std::string>(file, "tokenizer.ggml.tokens");
  parts.merges = meta_list<std::string>(file, "tokenizer.ggml.merges");
  for (const int64_t t : meta_list<int64_t>(file, "tokenizer.ggml.token_type"))
    parts.token_types.push_back(static_cast<int32_t>(t));
  for (const double s : meta_list<double>(file, "tokenizer.ggml.scores"))
    parts.scores.push_back(static_cast<float>(s));
  return parts;
}

// The spec of a named tokenizer; false (and counted as skipped) when its files are not here.
inline bool load_spec(const std::string& name, TokenizerSpec& spec) {
  if (name == "smollm2") {
    const std::string path = cache_path("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!std::ifstream(path)) return skip(name + ": no " + path), false;
    spec = tokenizer_spec_from_gguf(gguf_parts(*Checkpoint::open(path, LoadMode::mmap)));
    return true;
  }
  const std::string base = cache_path("tokenizers/" + name + "/package/models/");
  std::string json, config;
  if (!read_file(base + "tokenizer.json", json) ||
      !read_file(base + "tokenizer_config.json", config))
    return skip(name + ": no " + base + "tokenizer.json"), false;
  spec = tokenizer_spec_from_json(json, config);
  return true;
}
// Built once a run; null when skipped.
inline const Tokenizer* load_tokenizer(const std::string& name) {
  static std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> loaded;
  for (const auto& [n, t] : loaded)
    if (n == name) return t.get();
  TokenizerSpec spec;
  if (!load_spec(name, spec)) return nullptr;
  loaded.emplace_back(name, Tokenizer::create(std::move(spec)));
  return loaded.back().second.get();
}

inline Json golden(const std::string& name) {
  std::string text;
  if (!read_file(data_path("tokens/" + name + ".json"), text))
    fail(Status::not_found, "no tests/data/tokens/", name, ".json");
  return parse_json(text, name.c_str());
}

}  // namespace orlop::test
