#include "../check.h"
#include "builders.h"
#include "format/gguf.h"
#include "model/config.h"

using namespace orlop;
using namespace orlop::test;

static Json llama_json() {
  return Json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",
    "hidden_size":64,"intermediate_size":128,"num_hidden_layers":4,"num_attention_heads":8,
    "num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":512,"rms_norm_eps":1e-5,
    "hidden_act":"silu","bos_token_id":1,"eos_token_id":2})");
}
static Json family(const char* cls, const char* type) {
  Json j = llama_json();
  j["architectures"][0] = cls;
  j["model_type"] = type;
  return j;
}
static Config read(const Json& config, const Json& generation = {}) {
  Checkpoint c;
  c.kind = Checkpoint::Kind::hugging_face;
  c.path = "models/tiny";
  c.config = config;
  c.generation_config = generation;
  return read_config(c);
}
static Config with(const char* key, Json value, Json base = llama_json()) {
  base[key] = std::move(value);
  return read(base);
}
static Config without(const char* key, Json base = llama_json()) {
  base.erase(key);
  return read(base);
}
static Checkpoint gguf_checkpoint(const std::string& file) {
  static std::vector<std::string> kept;  // tensors point into the file
  kept.reserve(1000);
  kept.push_back(file);
  Checkpoint c;
  c.kind = Checkpoint::Kind::gguf;
  c.path = "m.gguf";
  parse_gguf(as_span(kept.back()), c.path, nullptr, c);
  return c;
}
static Config read(const Gguf& g) { return read_config(gguf_checkpoint(g.file())); }

TEST(reference_checkpoints) {
  const auto open = [](const char* name) {
    return read_config(*Checkpoint::open(std::string(TEST_DATA) + "/tiny/" + name, LoadMode::mmap));
  };
  const Config llama = open("llama");
  CHECK(llama.arch == "llama" && llama.model_name == "llama" && llama.layers == 3);
  CHECK(llama.dim == 96 && llama.heads == 6 && llama.kv_heads == 2 && llama.head_dim == 16);
  CHECK(llama.ffn_dim == 160 && llama.vocab == 131 && llama.max_position == 512);
  CHECK(llama.norm_eps == 1e-5f && !llama.tied_embeddings && !llama.attention_bias);
  CHECK(llama.window == 0 && llama.layer_window == std::vector<uint8_t>(3, 0));
  CHECK(llama.rope.type == RopeConfig::Type::standard && llama.rope.theta == 10000);
  CHECK(llama.rope.dim == 16 && llama.bos == 1 && llama.pad == 0 && llama.eos == std::vector{2});
  const Config window = open("mistral-window");
  CHECK(window.arch == "mistral" && window.window == 8);
  CHECK(window.layer_window == std::vector<uint8_t>(2, 1));
  const Config qwen2 = open("qwen2");
  CHECK(qwen2.arch == "qwen2" && qwen2.attention_bias && !qwen2.attention_out_bias);
  CHECK(qwen2.tied_embeddings && qwen2.window == 0 && qwen2.rope.theta == 1000000);
  const Config qwen3 = open("qwen3");
  CHECK(qwen3.arch == "qwen3" && !qwen3.attention_bias && qwen3.head_dim == 32);
  const Config rope = open("llama3-rope");
  CHECK(rope.rope.type == RopeConfig::Type::llama3 && rope.rope.factor == 8);
  CHECK(rope.rope.original_max_position == 64 && rope.rope.theta == 500000);
  CHECK(rope.tied_embeddings && rope.head_dim == 32 && rope.kv_heads == 1);
}

TEST(families) {
  CHECK(read(family("MistralForCausalLM", "mistral")).arch == "mistral");
  CHECK(read(family("Qwen2ForCausalLM", "qwen2")).arch == "qwen2");
  CHECK(read(family("Qwen3ForCausalLM", "qwen3")).arch == "qwen3");
  CHECK(without("architectures", family("x", "qwen3")).arch == "qwen3");
  CHECK(with("architectures", Json::array()).arch == "llama");
  CHECK_THROWS(unsupported, "\"GPT2LMHeadModel\" is not supported; known are LlamaForCausalLM, "
               "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM",
               read(family("GPT2LMHeadModel", "llama")));
  CHECK_THROWS(unsupported, "\"gemma\"", without("architectures", family("x", "gemma")));
  CHECK_THROWS(bad_format, "names the model", read(Json::object()));
  CHECK_THROWS(bad_format, "architectures", with("architectures", "LlamaForCausalLM"));
  CHECK_THROWS(bad_format, "architectures", with("architectures", Json::array({3})));
  CHECK_THROWS(bad_format, "model_type", with("model_type", 3, Json{{"a", 1}}));
  // How weights are stored is another reader's matter (format/quant.h).
  CHECK(with("quantization_config", Json{{"quant_method", "gptq"}}).arch == "llama");
}

TEST(numbers_are_checked) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size"}) {
    CHECK_THROWS(bad_format, (std::string("models/tiny/config.json: ") + key + " is missing").c_str(), without(key));
    CHECK_THROWS(bad_format, key, with(key, nullptr));
  }
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size", "num_key_value_heads",
                          "max_position_embeddings", "head_dim"})
    for (const Json& bad : {Json(0), Json(-1), Json(INT64_MIN), Json(UINT64_MAX), Json(INT64_MAX),
                            Json(1.5), Json(1e300), Json("8"), Json(true), Json::array({8}),
                            Json::object()})
      CHECK_THROWS(bad_format, (std::string("models/tiny/config.json: ") + key + " is ").c_str(), with(key, bad));
  CHECK(with("hidden_size", 128.0).dim == 128);
  CHECK_THROWS(bad_format, "1 to 1000", with("num_hidden_layers", 1001));
  CHECK_THROWS(bad_format, "1 to 1048576", with("hidden_size", (1 << 20) + 8));
  CHECK_THROWS(bad_format, "1 to 16777216", with("vocab_size", (1 << 24) + 1));
  for (const Json& bad : {Json(0), Json(-1e-5), Json(1), Json("x"), Json(1e-300), Json(nullptr)})
    if (!bad.is_null()) CHECK_THROWS(bad_format, "rms_norm_eps is", with("rms_norm_eps", bad));
  CHECK_THROWS(bad_format, "rms_norm_eps is nan", with("rms_norm_eps", std::nan("")));
  CHECK_THROWS(bad_format, "no multiple of 3", with("num_key_value_heads", 3));
  CHECK_THROWS(bad_format, "no multiple of num_attention_heads", with("hidden_size", 65));
  CHECK_THROWS(bad_format, "an even number", with("head_dim", 7));
  CHECK(with("head_dim", 128).head_dim == 128 && with("head_dim", nullptr).head_dim == 8);
  CHECK(without("num_key_value_heads").kv_heads == 8);
  CHECK(with("num_key_value_heads", nullptr).kv_heads == 8);
  CHECK(without("max_position_embeddings").max_position == 2048);
  CHECK(without("rms_norm_eps").norm_eps == 1e-6f);
  CHECK_THROWS(bad_format, "tie_word_embeddings is 1, true or false", with("tie_word_embeddings", 1));
  CHECK(with("tie_word_embeddings", true).tied_embeddings);
}

TEST(biases_and_activation) {
  const Config c = with("attention_bias", true);
  CHECK(c.attention_bias && c.attention_out_bias && !c.mlp_bias);
  CHECK(with("mlp_bias", true).mlp_bias);
  CHECK(!with("attention_bias", true, family("MistralForCausalLM", "mistral")).attention_bias);
  CHECK(with("hidden_act", "gelu_pytorch_tanh").activation == Glu::gelu_tanh);
  CHECK(without("hidden_act").activation == Glu::silu);
  CHECK_THROWS(unsupported, "hidden_act \"relu\"", with("hidden_act", "relu"));
  CHECK_THROWS(bad_format, "hidden_act is 3", with("hidden_act", 3));
}

TEST(windows) {
  Json m = family("MistralForCausalLM", "mistral");
  CHECK(without("sliding_window", m).window == 4096);
  CHECK(with("sliding_window", nullptr, m).window == 0);
  CHECK(with("sliding_window", 32, m).layer_window == std::vector<uint8_t>(4, 1));
  CHECK_THROWS(bad_format, "sliding_window is 0", with("sliding_window", 0, m));
  CHECK(with("sliding_window", 32).window == 0);  // Llama has none, whatever the file says

  Json q = family("Qwen2ForCausalLM", "qwen2");
  q["sliding_window"] = 32;
  CHECK(read(q).window == 0);
  q["use_sliding_window"] = false;
  CHECK(read(q).window == 0);
  q["use_sliding_window"] = true;
  q["max_window_layers"] = 3;
  CHECK((read(q).layer_window == std::vector<uint8_t>{0, 0, 0, 1}) && read(q).window == 32);
  q["max_window_layers"] = 4;
  CHECK(read(q).window == 0);  // no layer uses it
  q["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  CHECK((read(q).layer_window == std::vector<uint8_t>{1, 0, 0, 1}) && read(q).window == 32);
  q["use_sliding_window"] = false;
  CHECK_THROWS(bad_format, "layer 0 has sliding attention", read(q));
  CHECK_THROWS(bad_format, "has 1 entries for 4 layers", with("layer_types", {"full_attention"}, q));
  CHECK_THROWS(unsupported, "\"linear_attention\"",
               with("layer_types", Json(4, "linear_attention"), q));
  CHECK_THROWS(unsupported, "holds 3", with("layer_types", Json(4, 3), q));
  CHECK_THROWS(unsupported, "does not have", with("layer_types", Json(4, "full_attention"), m));
  CHECK(with("layer_types", Json(4, "full_attention")).window == 0);
  CHECK_THROWS(bad_format, "layer_types is {}", with("layer_types", Json::object(), q));
}

TEST(token_ids) {
  CHECK((with("eos_token_id", {3, 4, 3}).eos == std::vector<int32_t>{3, 4}));
  CHECK((read(llama_json(), Json{{"eos_token_id", {2, 7}}}).eos == std::vector<int32_t>{2, 7}));
  CHECK((read(llama_json(), Json{{"eos_token_id", 9}}).eos == std::vector<int32_t>{2, 9}));
  CHECK(without("eos_token_id").eos.empty() && with("eos_token_id", nullptr).eos.empty());
  CHECK_THROWS(bad_format, "config.json: eos_token_id is 100, the vocabulary has 100",
               with("eos_token_id", 100));
  CHECK_THROWS(bad_format, "generation_config.json: eos_token_id is 100",
               read(llama_json(), Json{{"eos_token_id", {1, 100}}}));
  CHECK_THROWS(bad_format, "eos_token_id is \"x\"", with("eos_token_id", {"x"}));
  CHECK_THROWS(bad_format, "eos_token_id is -2", with("eos_token_id", -2));
  CHECK_THROWS(bad_format, "lists 65 ids", with("eos_token_id", Json(65, 1)));
  CHECK_THROWS(bad_format, "bos_token_id is 100", with("bos_token_id", 100));
  CHECK(with("pad_token_id", -1).pad == -1 && with("pad_token_id", 100).pad == -1);
  CHECK(with("pad_token_id", 99).pad == 99 && with("bos_token_id", nullptr).bos == -1);
}

TEST(generation_defaults) {
  const auto get = [](const Json& j) {
    Checkpoint c;
    c.kind = Checkpoint::Kind::hugging_face;
    c.path = "models/tiny";
    c.generation_config = j;
    return read_generation_defaults(c);
  };
  GenerationDefaults d = get({});
  CHECK(!d.has_temperature && !d.has_top_p && !d.has_top_k && !d.has_min_p && !d.has_do_sample);
  d = get(Json::parse(R"({"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":0.05,
                          "repetition_penalty":1.1,"do_sample":true})"));
  CHECK(d.has_temperature && d.temperature == 0.6 && d.has_top_p && d.top_p == 0.9);
  CHECK(d.has_top_k && d.top_k == 20 && d.has_min_p && d.min_p == 0.05);
  CHECK(d.has_repetition_penalty && d.repetition_penalty == 1.1 && d.has_do_sample && d.do_sample);
  d = get(Json{{"temperature", nullptr}, {"do_sample", false}});
  CHECK(!d.has_temperature && d.has_do_sample && !d.do_sample);
  for (const auto& item : std::vector<std::pair<std::string, Json>>{
           {"temperature", -1}, {"temperature", "hot"}, {"top_p", 1.5}, {"top_p", -0.1},
           {"top_k", -1}, {"top_k", 1e10}, {"min_p", 2}, {"repetition_penalty", 0},
           {"do_sample", 1}})
    CHECK_THROWS(bad_format, ("generation_config.json: " + item.first + " is ").c_str(),
                 get(Json{{item.first, item.second}}));
  Gguf g = llama_gguf();
  g.f32("general.sampling.temp", 0.5f).key("general.sampling.top_k", 5, raw<int32_t>(20));
  const GenerationDefaults s = read_generation_defaults(gguf_checkpoint(g.file()));
  CHECK(s.has_temperature && s.temperature == 0.5 && s.has_top_k && s.top_k == 20 && !s.has_top_p);
}

TEST(gguf) {
  Gguf g = llama_gguf();
  g.u32("tokenizer.ggml.bos_token_id", 3).u32("tokenizer.ggml.eos_token_id", 1);
  g.numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 3, 3}).str("general.name", "Tiny");
  const Config c = read(g);
  CHECK(c.arch == "llama" && c.model_name == "Tiny" && c.layers == 2 && c.dim == 32);
  CHECK(c.heads == 4 && c.kv_heads == 2 && c.head_dim == 8 && c.ffn_dim == 64);
  CHECK(c.vocab == 4 && c.max_position == 64 && c.norm_eps == 1e-5f && c.tied_embeddings);
  CHECK(!c.attention_bias && !c.attention_out_bias && !c.mlp_bias && c.window == 0);
  CHECK(c.rope.theta == 10000 && c.rope.dim == 8 && c.bos == 3 && c.pad == -1);
  CHECK((c.eos == std::vector<int32_t>{1, 2}));  // stated, and <|im_end|>, a control token

  Gguf more = llama_gguf();
  more.u32("llama.vocab_size", 9).u32("llama.attention.sliding_window", 16);
  more.u32("llama.attention.key_length", 16).u32("llama.attention.value_length", 16);
  more.u32("tokenizer.ggml.eot_token_id", 2).u32("tokenizer.ggml.eom_token_id", 0);
  more.u32("tokenizer.ggml.padding_token_id", UINT32_MAX);
  more.tensor("output.weight", {1}, 0, "abcd").tensor("blk.0.attn_q.bias", {1}, 0, "abcd");
  more.tensor("blk.0.attn_output.bias", {1}, 0, "abcd").tensor("blk.0.ffn_gate.bias", {1}, 0, "abcd");
  const Config m = read(more);
  CHECK(m.vocab == 9 && m.window == 16 && m.layer_window == std::vector<uint8_t>(2, 1));
  CHECK(m.head_dim == 16 && m.rope.dim == 16 && !m.tied_embeddings && m.pad == -1);
  CHECK(m.attention_bias && m.attention_out_bias && m.mlp_bias);
  CHECK((m.eos == std::vector<int32_t>{2, 0}));
}

TEST(gguf_lies) {
  const auto llama = [](const char* key, uint32_t v) { return read(llama_gguf().u32(key, v)); };
  CHECK_THROWS(bad_format, "general.architecture is missing", read(Gguf()));
  CHECK_THROWS(unsupported, "\"gpt2\" is not supported; known are llama",
               read(Gguf().str("general.architecture", "gpt2")));
  CHECK_THROWS(bad_format, "general.architecture has the wrong type",
               read(Gguf().u32("general.architecture", 1)));
  CHECK_THROWS(unsupported, "general.type is \"adapter\"",
               read(llama_gguf().str("general.type", "adapter")));
  CHECK_THROWS(unsupported, "one of 3 parts", llama("split.count", 3));
  CHECK_THROWS(unsupported, "expert_count", llama("llama.expert_count", 8));
  CHECK(llama("llama.expert_count", 0).layers == 2);
  CHECK_THROWS(unsupported, "llama.logit_scale", llama("llama.logit_scale", 2));
  CHECK_THROWS(unsupported, "different lengths", llama("llama.attention.key_length", 16));
  CHECK_THROWS(bad_format, "the vocabulary has 4", llama("tokenizer.ggml.eos_token_id", 4));
  CHECK_THROWS(bad_format, "the vocabulary has 4", llama("tokenizer.ggml.bos_token_id", 4));
  CHECK_THROWS(bad_format, "lists 4 tokens, llama.vocab_size is 3", llama("llama.vocab_size", 3));
  CHECK_THROWS(bad_format, "sliding_window is 4294967295",
               llama("llama.attention.sliding_window", UINT32_MAX));
  for (const char* key : {"block_count", "context_length", "embedding_length",
                          "feed_forward_length", "attention.head_count",
                          "attention.layer_norm_rms_epsilon"}) {
    const std::string name = std::string("llama.") + key;
    Gguf g = llama_gguf();
    std::erase_if(g.keys, [&](const std::string& k) { return k.starts_with(Gguf::text(name)); });
    CHECK(g.keys.size() + 1 == llama_gguf().keys.size());
    CHECK_THROWS(bad_format, ("m.gguf: " + name + " is missing").c_str(), read(g));
    Gguf zero = g, text = g, big = g;
    CHECK_THROWS(bad_format, (name + " is 0").c_str(), read(zero.u32(name, 0)));
    CHECK_THROWS(bad_format, (name + " has the wrong type").c_str(), read(text.str(name, "4")));
    CHECK_THROWS(bad_format, (name + " is ").c_str(),
                 read(big.key(name, 10, raw<uint64_t>(UINT64_MAX))));
  }
  // Per-layer lists are taken when they agree.
  const auto lists = [](std::vector<int32_t> v) {
    Gguf g = llama_gguf();
    std::erase_if(g.keys, [](const std::string& k) { return k.find("head_count_kv") != k.npos; });
    return read(g.numbers("llama.attention.head_count_kv", 5, v));
  };
  CHECK(lists({2, 2}).kv_heads == 2);
  CHECK_THROWS(unsupported, "differs from layer to layer", lists({2, 4}));
  CHECK_THROWS(bad_format, "an empty list", lists({}));
  Gguf none = llama_gguf();
  none.keys.pop_back();
  CHECK_THROWS(bad_format, "the size of the vocabulary", read(none));
}

int main(int argc, char** argv) { return test_main(argc, argv); }
