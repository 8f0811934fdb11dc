#include "api/config.h"

#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace orlop::api {
namespace {

const std::vector<std::string_view> known_keys = {"model",
                                                  "model_offset",
                                                  "model_bytes",
                                                  "device",
                                                  "deterministic",
                                                  "compute",
                                                  "kv_dtype",
                                                  "block_size",
                                                  "kv_bytes",
                                                  "kv_fraction",
                                                  "n_gpu_layers",
                                                  "max_running_seqs",
                                                  "max_waiting",
                                                  "max_context",
                                                  "step_tokens",
                                                  "threads",
                                                  "load",
                                                  "debug_poison",
                                                  "quant",
                                                  "quant_bits",
                                                  "quant_granularity",
                                                  "quant_group_size",
                                                  "quant_symmetric",
                                                  "dtype",
                                                  "chunked_prefill",
                                                  "enable_prefix_cache",
                                                  "enable_guided_decoding",
                                                  "enable_cpu_prefix_swap",
                                                  "cpu_prefix_bytes",
                                                  "scheduling",
                                                  "itl_target_ms",
                                                  "output_bytes",
                                                  "debug_plan_ahead",
                                                  "debug_run_ahead"};

std::string shown(const Json& v) {
  std::string s = v.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (s.size() <= 80) return s;
  size_t n = 77;  // a cut falls between code points
  while (n > 0 && (static_cast<unsigned char>(s[n]) & 0xC0) == 0x80) --n;
  return s.substr(0, n) + "...";
}

std::string text_of(const char* key, const Json& v) {
  if (!v.is_string()) fail(Status::invalid_argument, key, ": must be a string, got ", shown(v));
  return v.get<std::string>();
}

int64_t integer_of(const char* key, const Json& v, int64_t low, int64_t high) {
  const bool whole = v.is_number_integer();
  const bool too_big = v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(high);
  if (!whole || too_big || v.get<int64_t>() < low || v.get<int64_t>() > high)
    fail(Status::invalid_argument, key, ": must be an integer of ", low, " to ", high, ", got ",
         shown(v));
  return v.get<int64_t>();
}

// One of a few numbers; `said` lists them.
int32_t number_of(const char* key, const Json& v, std::initializer_list<int32_t> allowed,
                  const char* said) {
  for (const int32_t a : allowed)
    if (v.is_number_integer() && v == a) return a;
  fail(Status::invalid_argument, key, ": must be ", said, ", got ", shown(v));
}

bool flag_of(const char* key, const Json& v) {
  if (!v.is_boolean())
    fail(Status::invalid_argument, key, ": must be true or false, got ", shown(v));
  return v.get<bool>();
}

[[noreturn]] void unserved(const std::string& key, const Json& v) {
  fail(Status::unsupported, key, ": ", shown(v), " is not supported by this version");
}

void apply(EngineConfig& c, const std::string& key, const Json& v) {
  constexpr int64_t int_max = 2147483647;
  const char* k = key.c_str();
  if (key == "model") {
    c.model = text_of(k, v);
    if (c.model.empty()) fail(Status::invalid_argument, "model: is empty");
    if (c.model.find('\0') != std::string::npos)
      fail(Status::invalid_argument, "model: a path holds no NUL");
  } else if (key == "model_offset") {
    c.part.offset = static_cast<uint64_t>(integer_of(k, v, 0, int64_t{1} << 62));
    if (c.part.offset % 64)  // what lies aligned in the part does so in memory
      fail(Status::invalid_argument, "model_offset: must be a multiple of 64, got ",
           c.part.offset);
  } else if (key == "model_bytes") {
    c.part.bytes = static_cast<uint64_t>(integer_of(k, v, 1, int64_t{1} << 62));
  } else if (key == "device") {
    c.device = text_of(k, v);
  } else if (key == "compute") {
    const std::string s = text_of(k, v);
    if (s == "bf16")
      c.compute = Compute::bf16;
    else if (s == "int8")
      c.compute = Compute::int8;
    else if (s == "fp32")
      c.compute = Compute::fp32;
    else if (s == "a8")
      c.compute = Compute::a8;
    else if (s != "auto")
      fail(Status::invalid_argument, "compute: must be auto, bf16, int8, a8 or fp32, got ",
           shown(v));
  } else if (key == "kv_dtype") {
    const std::string s = text_of(k, v);
    if (s == "bf16")
      c.kv_type = KvType::bf16;
    else if (s == "fp32")
      c.kv_type = KvType::f32;
    else if (s == "fp16")
      c.kv_type = KvType::f16;
    else if (s == "int8")
      c.kv_type = KvType::int8;
    else if (s == "uint4")
      c.kv_type = KvType::uint4;
    else if (s != "auto")
      fail(Status::invalid_argument,
           "kv_dtype: must be auto, bf16, fp16, int8, uint4 or fp32, got ", shown(v));
  } else if (key == "block_size") {
    c.block_size = static_cast<int32_t>(integer_of(k, v, 8, 256));
    if (c.block_size != 8 && c.block_size % 16)
      fail(Status::invalid_argument, "block_size: must be 8 or a multiple of 16, got ",
           c.block_size);
  } else if (key == "kv_bytes") {
    c.kv_bytes = integer_of(k, v, 1, int64_t{1} << 50);
  } else if (key == "kv_fraction") {
    if (!v.is_number() || !(v.get<double>() > 0 && v.get<double>() <= 1))
      fail(Status::invalid_argument, "kv_fraction: must be a number above 0, at most 1, got ", shown(v));
    c.kv_fraction = v.get<double>();
  } else if (key == "n_gpu_layers") {
    c.gpu_layers = static_cast<int32_t>(integer_of(k, v, 0, int_max));
  } else if (key == "max_running_seqs") {
    c.max_running_seqs = static_cast<int32_t>(integer_of(k, v, 1, 4096));
  } else if (key == "max_waiting") {
    c.max_waiting = static_cast<int32_t>(integer_of(k, v, 1, 10'000'000));
  } else if (key == "max_context") {
    c.max_context = static_cast<int32_t>(integer_of(k, v, 1, int_max));
  } else if (key == "step_tokens") {
    c.step_tokens = static_cast<int32_t>(integer_of(k, v, 1, 65536));
  } else if (key == "deterministic") {
    c.deterministic = flag_of(k, v);
  } else if (key == "threads") {
    c.threads = static_cast<int32_t>(integer_of(k, v, 0, 1024));
  } else if (key == "load") {
    const std::string s = text_of(k, v);
    if (s == "read")
      c.load = LoadMode::read;
    else if (s != "mmap")
      fail(Status::invalid_argument, "load: must be mmap or read, got ", shown(v));
  } else if (key == "debug_poison") {
    c.debug_poison = flag_of(k, v);
  } else if (key.starts_with("quant")) {
    // Together, by quant_options().
  } else if (key == "chunked_prefill") {
    c.chunked = flag_of(k, v);
  } else if (key == "enable_guided_decoding") {
    c.guides_ready = flag_of(k, v);
  } else if (key == "enable_prefix_cache") {
    c.prefix_cache = flag_of(k, v);
  } else if (key == "enable_cpu_prefix_swap") {
    c.host_tier = flag_of(k, v);
  } else if (key == "cpu_prefix_bytes") {
    c.host_tier_bytes = integer_of(k, v, 1, int64_t{1} << 50);
  } else if (key == "scheduling") {
    const std::string s = text_of(k, v);
    if (s != "fair" && s != "fcfs")
      fail(Status::invalid_argument, "scheduling: must be fair or fcfs, got ", shown(v));
    c.fcfs = s == "fcfs";
  } else if (key == "itl_target_ms") {
    if (!v.is_number() || !(v.get<double>() >= 0 && v.get<double>() <= 1e6))
      fail(Status::invalid_argument, "itl_target_ms: must be a number of 0 to 1000000, got ",
           shown(v));
    c.itl_target_ms = v.get<double>();
  } else if (key == "output_bytes") {
    c.output_bytes = integer_of(k, v, 1, int64_t{1} << 40);
  } else if (key == "debug_plan_ahead") {
    c.plan_ahead = flag_of(k, v);
  } else if (key == "debug_run_ahead") {
    c.run_ahead = flag_of(k, v);
  } else {
    unserved(key, v);
  }
}

// The keys quant*, which depend on each other.
QuantOptions quant_options(const Json& json) {
  QuantOptions o;
  const auto find = [&](const char* key) -> const Json* {
    const auto it = json.find(key);
    return it == json.end() ? nullptr : &*it;
  };
  const Json* quant = find("quant");
  const std::string kind = quant ? text_of("quant", *quant) : "none";
  const Json* bits = find("quant_bits");
  const Json* granularity = find("quant_granularity");
  const Json* group = find("quant_group_size");
  const Json* symmetric = find("quant_symmetric");
  const auto only_with = [&](const Json* value, const char* key, const char* wanted) {
    if (value)
      fail(Status::invalid_argument, key, ": needs quant ", wanted, ", got quant \"", kind, "\"");
  };
  if (kind == "iq" || kind == "a8w8") {
    o.kind = QuantOptions::Kind::dynamic;
  } else {
    if (kind != "none" && kind != "gptq" && kind != "awq" && kind != "fp8" &&
        kind != "compressed-tensors")
      fail(Status::invalid_argument,
           "quant: must be none, iq, a8w8, gptq, awq, fp8 or compressed-tensors, got ",
           shown(*quant));
    if (kind != "none") o.method = kind;
    only_with(bits, "quant_bits", "\"iq\" or \"a8w8\"");
    only_with(granularity, "quant_granularity", "\"iq\" or \"a8w8\"");
    only_with(group, "quant_group_size", "\"iq\"");
    only_with(symmetric, "quant_symmetric", "\"iq\" or \"a8w8\"");
    return o;
  }
  o.int8_activations = kind == "a8w8";
  if (bits) {
    o.bits = o.int8_activations
                 ? number_of("quant_bits", *bits, {8}, "8 with quant \"a8w8\"")
                 : number_of("quant_bits", *bits, {4, 8}, "8 or 4 with quant \"iq\"");
  }
  bool per_channel = o.int8_activations;
  if (granularity) {
    std::string s = text_of("quant_granularity", *granularity);
    if (s == "per-channel") s = "per_channel";
    if (s == "sub-channel") s = "group";
    if (s != "per_channel" && s != "group")
      fail(Status::invalid_argument, "quant_granularity: must be per_channel or group, got ",
           shown(*granularity));
    if (o.int8_activations && s == "group")
      fail(Status::invalid_argument, "quant_granularity: must be per_channel with quant \"a8w8\"");
    per_channel = s == "per_channel";
  }
  if (group) {
    o.group = number_of("quant_group_size", *group, {32, 64, 128}, "32, 64 or 128");
    if (per_channel)
      fail(Status::invalid_argument,
           "quant_group_size: needs quant_granularity \"group\" and quant \"iq\"");
  } else if (!per_channel) {
    o.group = 32;
  }
  // A minimum beside the scale is worth its bytes where there are 16 codes, not where 256.
  o.symmetric = symmetric ? flag_of("quant_symmetric", *symmetric) : o.bits == 8;
  return o;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

EngineConfig parse_engine_config(std::string_view text) {
  JsonLimits limits;
  limits.max_depth = 8;
  limits.max_bytes = size_t{1} << 20;
  Json json;
  try {
    json = parse_json(text, "engine configuration", limits);
  } catch (const Error& e) {
    throw Error(Status::invalid_argument, e.text());  // it is an argument, no file
  }
  if (!json.is_object())
    fail(Status::invalid_argument, "engine configuration: must be a JSON object, got ",
         json.type_name());
  EngineConfig c;
  for (const auto& [key, value] : json.items()) {
    bool known = false;
    for (const std::string_view k : known_keys) known = known || k == key;
    if (!known) {
      const std::string near = nearest_key(key, known_keys);
      fail(Status::invalid_argument, "engine configuration: unknown key ", in_quotes(key),
           near.empty() ? "" : cat("; did you mean \"", near, "\"?"));
    }
    apply(c, key, value);
  }
  c.quant = quant_options(json);
  if (c.model.empty()) fail(Status::invalid_argument, "model: is required");
  if ((c.kv_type == KvType::int8 || c.kv_type == KvType::uint4) && c.block_size % 16)
    fail(Status::invalid_argument, "block_size: must be a multiple of 16 with kv_dtype ",
         name(*c.kv_type), ", got ", c.block_size);
  if (c.kv_bytes && c.kv_fraction)
    fail(Status::invalid_argument, "kv_fraction: kv_bytes is given too; one of them says how large the KV cache is");
  if (c.host_tier && !c.prefix_cache)
    fail(Status::invalid_argument,
         "enable_cpu_prefix_swap: needs enable_prefix_cache, which is false");
  return c;
}

}  // namespace orlop::api
