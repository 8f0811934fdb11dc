#include <cmath>
#include <fstream>
#include <sstream>

#include "../check.h"
#include "builders.h"
#include "format/gguf.h"
#include "model/config.h"

using namespace orlop;
using namespace orlop::test;

static Config read(const Json& json) {
  Checkpoint c;
  c.kind = Checkpoint::Kind::hugging_face;
  c.path = "m";
  c.config = json;
  return read_config(c);
}

// Every row of data/rope.json (made by make_rope.py from transformers).
TEST(as_transformers_computes) {
  std::ifstream in(std::string(TEST_DATA) + "/rope.json");
  std::stringstream text;
  text << in.rdbuf();
  const Json rows = parse_json(text.str(), "rope.json").at("rows");
  CHECK(rows.size() == 30);
  double worst = 0;
  int equal = 0, all = 0;
  for (const Json& row : rows) {
    const Config c = read(row.at("config"));
    const RopeFrequencies f =
        rope_frequencies(c.rope, c.max_position, row.at("max_context").get<int32_t>());
    const auto want = row.at("inv_freq").get<std::vector<float>>();
    CHECK(f.inv_freq.size() == want.size());
    double error = std::fabs(f.scale / row.at("scale").get<double>() - 1);
    for (size_t i = 0; i < std::min(want.size(), f.inv_freq.size()); ++i) {
      error = std::max(error, std::fabs(double{f.inv_freq[i]} / want[i] - 1));
      equal += f.inv_freq[i] == want[i];
      ++all;
    }
    // A few units in the last place of a float: their power function is not correctly rounded.
    if (!(error < 4e-7))
      std::fprintf(stderr, "  %s: relative error %g\n", row.at("name").get<std::string>().c_str(), error);
    CHECK(error < 4e-7);
    worst = std::max(worst, error);
  }
  std::printf("%d of %d frequencies have the same bits, worst relative error %.2g\n", equal, all, worst);
}

static Json with_rope(const Json& rope) {
  Json j = Json::parse(R"({"architectures":["LlamaForCausalLM"],"hidden_size":512,
    "intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":8,"vocab_size":10,
    "max_position_embeddings":4096})");
  j["rope_parameters"] = rope;
  return j;
}

TEST(lies_in_config_json) {
  const struct {
    Status status;
    const char* words;
    const char* rope;
  } rows[] = {
      {Status::unsupported, "rope_parameters.rope_type \"longrope\"", R"({"rope_type":"longrope"})"},
      {Status::unsupported, "\"mrope\" is not supported", R"({"type":"mrope"})"},
      {Status::unsupported, "by layer type", R"({"full_attention":{"rope_type":"default"}})"},
      {Status::bad_format, "rope_parameters is 3", "3"},
      {Status::bad_format, "rope_type is 3", R"({"rope_type":3})"},
      {Status::bad_format, "rope_parameters.rope_theta is 0", R"({"rope_theta":0})"},
      {Status::bad_format, "rope_parameters.rope_theta is -1", R"({"rope_theta":-1})"},
      {Status::bad_format, "rope_theta is 1, more", R"({"rope_theta":1})"},
      {Status::bad_format, "rope_theta is 1e+300", R"({"rope_theta":1e300})"},
      {Status::bad_format, "rope_theta is \"x\"", R"({"rope_theta":"x"})"},
      {Status::bad_format, "rope_parameters.factor is missing", R"({"rope_type":"linear"})"},
      {Status::bad_format, "rope_parameters.factor is 0", R"({"rope_type":"linear","factor":0})"},
      {Status::bad_format, "factor is -2", R"({"rope_type":"linear","factor":-2})"},
      {Status::bad_format, "factor is 0.5", R"({"rope_type":"dynamic","factor":0.5})"},
      {Status::bad_format, "low_freq_factor is missing", R"({"rope_type":"llama3","factor":8})"},
      {Status::bad_format, "high_freq_factor is 1, more than",
       R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":1})"},
      {Status::bad_format, "original_max_position_embeddings is 0",
       R"({"rope_type":"yarn","factor":8,"original_max_position_embeddings":0})"},
      {Status::bad_format, "attention_factor is -1", R"({"rope_type":"yarn","factor":8,"attention_factor":-1})"},
      {Status::bad_format, "beta_fast is -1", R"({"rope_type":"yarn","factor":8,"beta_fast":-1})"},
      {Status::bad_format, "truncate is 1", R"({"rope_type":"yarn","factor":8,"truncate":1})"},
      {Status::bad_format, "partial_rotary_factor is 2", R"({"partial_rotary_factor":2})"},
      {Status::bad_format, "0 elements of a head of 64", R"({"partial_rotary_factor":0})"},
      {Status::bad_format, "33 elements of a head of 64", R"({"partial_rotary_factor":0.53})"},
      {Status::bad_format, "more than 2 rotated",
       R"({"rope_type":"dynamic","factor":2,"partial_rotary_factor":0.04})"},
  };
  for (const auto& row : rows)
    CHECK(throws(row.status, row.words, [&] { read(with_rope(Json::parse(row.rope))); }));
  // rope_scaling comes first when both are there, as in transformers.
  Json both = with_rope({{"rope_type", "linear"}, {"factor", 2}});
  both["rope_scaling"] = {{"type", "linear"}, {"factor", 3}};
  CHECK(read(both).rope.factor == 3);
  both["rope_scaling"] = Json::object();
  CHECK(read(both).rope.factor == 2);
}

static RopeConfig gguf(Gguf g) {
  const std::string file = g.file();
  Checkpoint c;
  c.path = "m.gguf";
  parse_gguf(as_span(file), c.path, nullptr, c);
  return read_config(c).rope;
}

TEST(gguf_keys) {
  Gguf g = llama_gguf();
  g.f32("llama.rope.freq_base", 500000.0f).u32("llama.rope.dimension_count", 4);
  RopeConfig r = gguf(g);
  CHECK(r.type == RopeConfig::Type::standard && r.theta == 500000 && r.dim == 4);
  g.f32("llama.rope.scaling.factor", 4.0f);
  CHECK(gguf(g).type == RopeConfig::Type::linear && gguf(g).factor == 4);
  CHECK(gguf(llama_gguf().f32("llama.rope.scale_linear", 2.0f)).factor == 2);
  CHECK(gguf(llama_gguf().str("llama.rope.scaling.type", "none")).type == RopeConfig::Type::standard);
  Gguf y = llama_gguf();
  y.str("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0f);
  y.u32("llama.rope.scaling.original_context_length", 16);
  r = gguf(y);
  CHECK(r.type == RopeConfig::Type::yarn && r.factor == 4 && r.original_max_position == 16);
  CHECK(r.attention_factor == 0 && r.beta_fast == 32 && r.beta_slow == 1);
  const float derived = rope_frequencies(r, 64, 64).scale;
  CHECK(std::fabs(derived - (0.1 * std::log(4.0) + 1)) < 1e-6);
  y.f32("llama.rope.scaling.attn_factor", 0.5f);
  CHECK(std::fabs(rope_frequencies(gguf(y), 64, 64).scale - 0.5 * derived) < 1e-6);
  CHECK_THROWS(unsupported, "\"longrope\"", gguf(llama_gguf().str("llama.rope.scaling.type", "longrope")));
  CHECK_THROWS(bad_format, "freq_base is nan", gguf(llama_gguf().f32("llama.rope.freq_base", NAN)));
  CHECK_THROWS(bad_format, "freq_base is inf", gguf(llama_gguf().f32("llama.rope.freq_base", INFINITY)));
  CHECK_THROWS(bad_format, "scaling.factor is -4", gguf(llama_gguf().f32("llama.rope.scaling.factor", -4)));
  CHECK_THROWS(bad_format, "16 elements of a head of 8 are rotated",
               gguf(llama_gguf().u32("llama.rope.dimension_count", 16)));
}

TEST(gguf_factors) {
  const auto factors = [](std::vector<float> v, uint32_t type = 0) {
    std::string s;
    for (float f : v) s += raw(f);
    return gguf(llama_gguf().tensor("rope_freqs.weight", {v.size()}, type,
                                    s.substr(0, type ? s.size() / 2 : s.size())));
  };
  const RopeConfig r = factors({1, 2, 4, 8});
  CHECK((r.factors == std::vector<float>{1, 2, 4, 8}));
  const RopeFrequencies plain = rope_frequencies(gguf(llama_gguf()), 64, 64);
  const RopeFrequencies f = rope_frequencies(r, 64, 64);
  for (size_t i = 0; i < 4; ++i) CHECK(f.inv_freq[i] == plain.inv_freq[i] / r.factors[i]);
  CHECK_THROWS(bad_format, "one of 4 is needed", factors({1, 2, 4}));
  CHECK_THROWS(bad_format, "an element is 0", factors({1, 0, 4, 8}));
  CHECK_THROWS(bad_format, "an element is nan", factors({1, NAN, 4, 8}));
  CHECK_THROWS(bad_format, "an element is -1", factors({1, -1, 4, 8}));
  CHECK_THROWS(unsupported, "has type f16", factors({1, 1, 1, 1}, 1));
}

// The factors that converters store for Llama 3 scaling give what config.json's keys give.
TEST(gguf_factors_equal_llama3) {
  RopeConfig llama3;
  llama3.type = RopeConfig::Type::llama3;
  llama3.theta = 500000;
  llama3.dim = 128;
  llama3.factor = 8;
  llama3.original_max_position = 8192;
  RopeConfig stored = llama3, plain = llama3;
  plain.type = stored.type = RopeConfig::Type::standard;
  const auto want = rope_frequencies(llama3, 131072, 131072).inv_freq;
  const auto base = rope_frequencies(plain, 131072, 131072).inv_freq;
  for (size_t i = 0; i < base.size(); ++i) stored.factors.push_back(base[i] / want[i]);
  const auto got = rope_frequencies(stored, 131072, 131072).inv_freq;
  for (size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] / want[i] - 1) < 3e-7);
  CHECK(want[63] < base[63] && want[0] == base[0]);
}

TEST(wrong_calls) {
  RopeConfig r;
  CHECK_THROWS(invalid_argument, "rotary frequencies of 0", rope_frequencies(r, 64, 64));
  r.dim = 8;
  CHECK_THROWS(invalid_argument, "0 positions", rope_frequencies(r, 0, 64));
  r.factors = {1};
  CHECK_THROWS(invalid_argument, "1 rotary factors for 4", rope_frequencies(r, 64, 64));
}

int main(int argc, char** argv) { return test_main(argc, argv); }
