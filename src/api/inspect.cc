// orlop_inspect: what a model file or folder holds.
#include <map>

#include "api/guard.h"
#include "api/vocabulary.h"
#include "base/json.h"
#include "format/quant.h"
#include "model/config.h"

using namespace orlop;
using namespace orlop::api;

namespace {

const char* rope_name(RopeConfig::Type t) {
  switch (t) {
    case RopeConfig::Type::standard:
      return "default";
    case RopeConfig::Type::linear:
      return "linear";
    case RopeConfig::Type::dynamic:
      return "dynamic";
    case RopeConfig::Type::llama3:
      return "llama3";
    case RopeConfig::Type::yarn:
      return "yarn";
  }
  return "";
}

OrderedJson config_json(const Config& c) {
  return {{"arch", c.arch},
          {"name", c.model_name},
          {"layers", c.layers},
          {"dim", c.dim},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"ffn_dim", c.ffn_dim},
          {"vocab", c.vocab},
          {"max_position", c.max_position},
          {"norm_eps", c.norm_eps},
          {"tied_embeddings", c.tied_embeddings},
          {"attention_bias", c.attention_bias},
          {"mlp_bias", c.mlp_bias},
          {"window", c.window},
          {"rope",
           {{"type", rope_name(c.rope.type)},
            {"theta", c.rope.theta},
            {"factor", c.rope.factor},
            {"dim", c.rope.dim}}},
          {"bos", c.bos},
          {"eos", c.eos}};
}

OrderedJson tokenizer_json(const Checkpoint& c) {
  TokenizerSpec spec;
  if (c.kind == Checkpoint::Kind::gguf) {
    if (!read_gguf_tokenizer(c, spec)) return nullptr;
  } else if (c.tokenizer_json.empty()) {
    return nullptr;
  } else {
    spec = tokenizer_spec_from_json(c.tokenizer_json, c.tokenizer_config_json);
  }
  size_t special = 0;
  for (const AddedToken& t : spec.added) special += t.special;
  return {{"kind", spec.kind == TokenizerSpec::Kind::byte_bpe ? "byte_bpe" : "sentencepiece_bpe"},
          {"vocab", spec.vocab.size()},
          {"merges", spec.merges.size()},
          {"added_tokens", spec.added.size()},
          {"special_tokens", special},
          {"bos", spec.bos},
          {"bos_text", token_text(spec, spec.bos)},
          {"eos", spec.eos},
          {"eos_text", token_text(spec, spec.eos)},
          {"unk", spec.unk},
          {"pad", spec.pad},
          {"add_bos", spec.add_bos},
          {"add_eos", spec.add_eos}};
}

// What this version cannot read is shown as the reason; the rest is shown all the same.
template <class Part>
OrderedJson or_error(Part&& part) {
  try {
    return part();
  } catch (const Error& e) {
    return {{"error", e.text()}};
  }
}

OrderedJson inspect(const Checkpoint& c) {
  OrderedJson j;
  const bool gguf = c.kind == Checkpoint::Kind::gguf;
  j["path"] = c.path;
  j["kind"] = gguf ? "gguf" : "hugging_face";
  if (gguf) j["gguf_version"] = c.gguf_version;
  uint64_t bytes = 0;
  j["files"] = OrderedJson::array();
  for (const auto& f : c.files) {
    j["files"].push_back({{"path", f->path()}, {"bytes", f->bytes().size()}});
    bytes += f->bytes().size();
  }
  j["file_bytes"] = bytes;

  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<std::string, Sum> formats;
  uint64_t elements_in_all = 0, tensor_bytes = 0;
  OrderedJson tensors = OrderedJson::array();
  for (const FileTensor& t : c.tensors) {
    uint64_t elements = 1;
    for (const int64_t n : t.shape) elements *= static_cast<uint64_t>(n);  // checked by the reader
    const char* type = info(t.type).name;
    Sum& sum = formats[type];
    ++sum.tensors;
    sum.elements += elements;
    sum.bytes += t.data.size();
    elements_in_all += elements;
    tensor_bytes += t.data.size();
    tensors.push_back(
        {{"name", t.name}, {"shape", t.shape}, {"type", type}, {"bytes", t.data.size()}});
  }
  j["parameters"] = elements_in_all;  // of packed matrices put right below
  j["tensor_bytes"] = tensor_bytes;
  j["formats"] = OrderedJson::object();
  for (const auto& [type, sum] : formats)
    j["formats"][type] = {
        {"tensors", sum.tensors}, {"elements", sum.elements}, {"bytes", sum.bytes}};
  j["quantization"] = or_error([&]() -> OrderedJson {
    const auto scheme = QuantScheme::open(c);
    if (!scheme) return nullptr;
    return {{"method", scheme->method()},
            {"summary", scheme->summary()},
            {"int8_activations", scheme->int8_activations()}};
  });
  j["config"] = or_error([&] {
    const Config config = read_config(c);
    if (j["quantization"].is_object() && j["quantization"].contains("method"))
      j["parameters"] = matrix_parameters(config);
    return config_json(config);
  });
  j["tokenizer"] = or_error([&] { return tokenizer_json(c); });
  const std::string source = template_source(c);
  j["chat_template"] = source.empty() ? OrderedJson(nullptr) : OrderedJson(source);
  j["tensors"] = std::move(tensors);
  return j;
}

}  // namespace

int32_t orlop_inspect(const char* path, size_t len, orlop_buffer** json, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(json, "json");
    const std::string where(text_in(path, len, "path"));
    if (where.empty()) fail(Status::invalid_argument, "path: is empty");
    if (where.find('\0') != std::string::npos)
      fail(Status::invalid_argument, "path: a path holds no NUL");
    const auto checkpoint = Checkpoint::open(where, LoadMode::mmap);
    *json =
        new_buffer(inspect(*checkpoint).dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    return Status::ok;
  });
}
