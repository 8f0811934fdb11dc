// A folder as Hugging Face's transformers saves it: config.json, weights in one safetensors file or
// in shards with an index, and the files of tokenizer and generation defaults.
#include "format/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "format/safetensors.h"

namespace orlop {
namespace {

constexpr size_t max_config = size_t{16} << 20;
constexpr size_t max_index = size_t{64} << 20;
constexpr size_t max_tokenizer = size_t{256} << 20;
constexpr size_t max_template = size_t{1} << 20;
constexpr size_t max_shards = 4096;

std::string join(const std::string& folder, std::string_view file) {
  std::string out = folder;
  if (!out.empty() && out.back() != '/') out += '/';
  out += file;
  return out;
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

// The text of a small file; false when it is not there.
bool read_text(const std::string& path, size_t limit, std::string& out) {
  std::shared_ptr<MappedFile> file;
  try {
    struct stat st {};
    if (::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
        static_cast<uint64_t>(st.st_size) > limit)
      fail(Status::bad_format, path, ": has ", st.st_size, " bytes, at most ", limit,
           " are allowed");
    file = MappedFile::open(path, LoadMode::read);
  } catch (const Error& e) {
    if (e.status() == Status::not_found) return false;
    throw;
  }
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() > limit)
    fail(Status::bad_format, path, ": has ", bytes.size(), " bytes, at most ", limit,
         " are allowed");
  out.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return true;
}

void add_tensors(std::vector<FileTensor> tensors, Checkpoint& out) {
  for (FileTensor& tensor : tensors) {
    out.index.emplace(tensor.name, out.tensors.size());
    out.tensors.push_back(std::move(tensor));
  }
}

void open_shards(const std::string& folder, const std::string& index_path, std::string_view text,
                 LoadMode mode, Checkpoint& out) {
  const auto shards = parse_shard_index(text, index_path);
  std::unordered_map<std::string_view, std::string_view> shard_of;
  for (const auto& [shard, names] : shards)
    for (const std::string& name : names) shard_of.emplace(name, shard);

  for (const auto& [shard, names] : shards) {
    const std::string path = join(folder, shard);
    std::shared_ptr<MappedFile> file;
    try {
      file = MappedFile::open(path, mode);
    } catch (const Error& e) {
      if (e.status() != Status::not_found) throw;
      fail(Status::not_found, path, ": a shard that ", index_path, " lists is missing");
    }
    std::vector<FileTensor> tensors = parse_safetensors(file->bytes(), path, file);
    for (const FileTensor& tensor : tensors) {
      const auto it = shard_of.find(tensor.name);
      if (it == shard_of.end())
        fail(Status::bad_format, path, ": tensor \"", printable(tensor.name), "\" is not listed in ",
             index_path);
      if (it->second != shard)
        fail(Status::bad_format, path, ": tensor \"", printable(tensor.name), "\" is listed in ",
             index_path, " as part of ", it->second);
    }
    out.files.push_back(std::move(file));
    add_tensors(std::move(tensors), out);
    for (const std::string& name : names)
      if (!out.index.contains(name))
        fail(Status::bad_format, path, ": tensor \"", printable(name), "\" that ", index_path,
             " lists is missing");
  }
}

void open_weights(const std::string& folder, LoadMode mode, Checkpoint& out) {
  const std::string single = join(folder, "model.safetensors");
  const std::string index_path = join(folder, "model.safetensors.index.json");
  if (exists(single)) {
    std::shared_ptr<MappedFile> file = MappedFile::open(single, mode);
    add_tensors(parse_safetensors(file->bytes(), single, file), out);
    out.files.push_back(std::move(file));
    return;
  }
  std::string text;
  if (read_text(index_path, max_index, text)) {
    open_shards(folder, index_path, text, mode, out);
    return;
  }
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                            "flax_model.msgpack", "consolidated.safetensors"})
    if (exists(join(folder, other)))
      fail(Status::unsupported, folder, ": its weights are in ", other,
           "; model.safetensors (or model.safetensors.index.json and its shards) is needed");
  fail(Status::not_found, folder,
       ": neither model.safetensors nor model.safetensors.index.json is there");
}

}  // namespace

std::map<std::string, std::vector<std::string>> parse_shard_index(std::string_view text,
                                                                  const std::string& name) {
  const Json index = parse_json(text, name.c_str(), {.max_depth = 16, .max_bytes = max_index});
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(Status::bad_format, name, ": no object \"weight_map\"");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, value] : index["weight_map"].items()) {
    if (!value.is_string())
      fail(Status::bad_format, name, ": the shard of tensor \"", printable(tensor),
           "\" is no string");
    const std::string& shard = value.get_ref<const std::string&>();
    constexpr std::string_view ending = ".safetensors";
    const bool plain = shard.size() > ending.size() && shard.size() <= 255 && shard[0] != '.' &&
                       std::none_of(shard.begin(), shard.end(), [](char c) {
                         return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
                       });
    if (!plain || !shard.ends_with(ending))
      fail(Status::bad_format, name, ": the shard \"", printable(shard), "\" of tensor \"",
           printable(tensor), "\" is no plain name of a .safetensors file");
    shards[shard].push_back(tensor);
  }
  if (shards.empty()) fail(Status::bad_format, name, ": \"weight_map\" is empty");
  if (shards.size() > max_shards)
    fail(Status::bad_format, name, ": ", shards.size(), " shards, at most ", max_shards,
         " are allowed");
  return shards;
}

std::string template_of_tokenizer_config(std::string_view text, const std::string& name) {
  const Json config = parse_json(text, name.c_str(), {.max_bytes = max_tokenizer});
  if (!config.is_object()) fail(Status::bad_format, name, ": no JSON object");
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array())
    fail(Status::bad_format, name, ": chat_template is neither a string nor a list");
  // Several templates by name; "default" is the one for chat.
  std::string chosen;
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string())
      fail(Status::bad_format, name,
           ": an entry of the list chat_template is no object of strings name and template");
    if (entry["name"] == "default") chosen = entry["template"].get<std::string>();
  }
  return chosen;
}

void open_folder(const std::string& path, LoadMode mode, Checkpoint& out) {
  std::string text;
  const std::string config = join(path, "config.json");
  if (!read_text(config, max_config, text))
    fail(Status::not_found, config, ": is missing; a checkpoint folder needs it");
  out.config = parse_json(text, config.c_str(), {.max_bytes = max_config});
  if (!out.config.is_object()) fail(Status::bad_format, config, ": no JSON object");

  const std::string generation = join(path, "generation_config.json");
  if (read_text(generation, max_config, text)) {
    out.generation_config = parse_json(text, generation.c_str(), {.max_bytes = max_config});
    if (!out.generation_config.is_object())
      fail(Status::bad_format, generation, ": no JSON object");
  }
  read_text(join(path, "tokenizer.json"), max_tokenizer, out.tokenizer_json);
  const std::string tokenizer_config = join(path, "tokenizer_config.json");
  if (read_text(tokenizer_config, max_tokenizer, out.tokenizer_config_json))
    out.chat_template = template_of_tokenizer_config(out.tokenizer_config_json, tokenizer_config);
  // A template in a file of its own takes the place of one inside tokenizer_config.json.
  read_text(join(path, "chat_template.jinja"), max_template, out.chat_template);

  open_weights(path, mode, out);
}

}  // namespace orlop
