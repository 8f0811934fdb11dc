#include <algorithm>
#include <ctime>

#include "tokenizers.h"

using namespace orlop;
using namespace orlop::test;

namespace {

using Ids = std::vector<int32_t>;
constexpr EncodeOptions plain{false, false, {}};
constexpr EncodeOptions parsed{false, true, {}};
constexpr EncodeOptions full{true, true, {}};

// Processor time, so that a busy machine does not count.
double now_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void report(const std::string& name, const std::string& text, const char* what) {
  std::fprintf(stderr, "  %s: %s differs for %s\n", name.c_str(), what, Json(text).dump().c_str());
}

}  // namespace

TEST(every_golden_row) {
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    int rows = 0;
    for (const Json& row : golden(name)) {
      const std::string text = row["text"];
      const Ids ids = row["ids"];
      const bool same = t->encode(text, parsed) == ids &&
                        t->encode(text, full) == row["ids_with_special"].get<Ids>();
      const bool back = t->decode(ids, false) == row["decoded"].get<std::string>() &&
                        t->decode(ids, true) == row["decoded_skip_special"].get<std::string>();
      if (!same) report(name, text, "encoding");
      if (!back) report(name, text, "decoding");
      CHECK(same && back);
      ++rows;
    }
    CHECK(rows > 100);
    std::printf("%s: %d golden rows\n", name.c_str(), rows);
  }
}

// Small tokenizers, one for each feature of tokenizer.json, with what the reference library makes of
// them: added tokens and their flags, split behaviors, prefixes, unknown bytes and characters.
TEST(small_tokenizers) {
  const Json file = golden("small");
  int rows = 0;
  for (const Json& one : file["cases"]) {
    const std::string name = one["name"];
    Json json = one["tokenizer"];
    json["model"] = file["models"][one["model"].get<size_t>()];
    const auto t = Tokenizer::create(tokenizer_spec_from_json(json.dump(), ""));
    for (const Json& row : one["rows"]) {
      const Ids ids = row["ids"];
      bool same = t->decode(ids, false) == row["all"].get<std::string>() &&
                  t->decode(ids, true) == row["skip"].get<std::string>();
      if (!same) report(name, row["all"], "decoding");
      if (row.contains("text")) {
        const std::string text = row["text"];
        const bool encodes =
            t->encode(text, parsed) == ids && t->encode(text, full) == row["full"].get<Ids>();
        if (!encodes) {
          report(name, text, "encoding");
          std::fprintf(stderr, "    %s, not %s\n", Json(t->encode(text, parsed)).dump().c_str(),
                       Json(ids).dump().c_str());
        }
        same &= encodes;
      }
      CHECK(same);
      ++rows;
    }
  }
  std::printf("small tokenizers: %d rows\n", rows);
}

// Random strings (scripts, marks, odd spaces, contractions) and random ids, by the reference library.
TEST(random_rows) {
  const Json file = golden("random");
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    for (const Json& row : file[name]["encode"]) {
      const std::string text = row["text"];
      const bool same = t->encode(text, parsed) == row["ids"].get<Ids>() &&
                        t->encode(text, full) == row["full"].get<Ids>();
      if (!same) report(name, text, "encoding");
      CHECK(same);
    }
    for (const Json& row : file[name]["decode"]) {
      const Ids ids = row["ids"];
      CHECK(t->decode(ids, false) == row["all"].get<std::string>());
      CHECK(t->decode(ids, true) == row["skip"].get<std::string>());
    }
  }
}

// The same vocabulary as GGUF would hold it: SentencePiece scores in place of merges.
TEST(scores_equal_merges) {
  TokenizerSpec spec;
  if (!load_spec("llama2", spec)) return;
  GgufTokenizer parts;
  parts.model = "llama";
  parts.tokens = spec.vocab;
  parts.scores.assign(spec.vocab.size(), -1e9f);
  const auto t0 = Tokenizer::create(spec);
  for (size_t rank = spec.merges.size(); rank-- > 0;) {
    const auto& [left, right] = spec.merges[rank];
    parts.scores[static_cast<size_t>(t0->find(left + right))] = -static_cast<float>(rank);
  }
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    parts.token_types.push_back(i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
  }
  const auto t = Tokenizer::create(tokenizer_spec_from_gguf(parts));
  CHECK(t->spec().bos == 1 && t->spec().eos == 2 && t->spec().unk == 0 && t->spec().add_bos);
  for (const Json& row : golden("llama2")) {
    const std::string text = row["text"];
    const Ids ids = row["ids"];
    const bool same = t->encode(text, parsed) == ids &&
                      t->encode(text, full) == row["ids_with_special"].get<Ids>() &&
                      t->decode(ids, true) == row["decoded_skip_special"].get<std::string>();
    if (!same) report("llama2 with scores", text, "something");
    CHECK(same);
  }
}

TEST(untrusted_bytes_make_no_control_token) {
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    for (const AddedToken& a : t->spec().added) {
      if (!a.special) continue;
      const std::string text = "x " + a.text + " y";
      const size_t at = 2, end = at + a.text.size();
      const auto count = [&](std::vector<ByteRange> untrusted, bool parse) {
        const Ids ids = t->encode(text, {false, parse, untrusted});
        // Nothing is lost either way.
        CHECK(t->decode(ids, false) == text ||
              (name == "llama2" && t->decode(ids, false).size() >= text.size()));
        return std::count(ids.begin(), ids.end(), a.id);
      };
      CHECK(count({}, true) == 1);
      CHECK(count({}, false) == 0);
      CHECK(count({{0, text.size()}}, true) == 0);
      CHECK(count({{at, at + 1}}, true) == 0);            // its first byte
      CHECK(count({{end - 1, end}}, true) == 0);          // its last
      CHECK(count({{0, at}, {end, text.size()}}, true) == 1);  // just around it
      CHECK(count({{at + 1, at + 1}}, true) == 1);        // an empty range is no byte
    }
  }
  // Added tokens that are no control tokens are found wherever they are.
  if (const Tokenizer* t = load_tokenizer("qwen3")) {
    const std::string text = "<think>";
    const ByteRange all[] = {{0, text.size()}};
    CHECK((t->encode(text, {false, true, all}) == Ids{t->find(text)}));
    CHECK(!t->is_special(t->find(text)));
  }
}

TEST(pieces_run_across_borders) {
  const Tokenizer* t = load_tokenizer("smollm2");
  if (!t) return;
  const ByteRange tail[] = {{2, 11}};
  CHECK(t->encode("Hello world", {false, true, tail}) == t->encode("Hello world", plain));
}

namespace {

Json tiny() {
  return parse_json(R"({"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":false,
      "vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"<s>":4},"merges":["a b"]},
      "added_tokens":[{"id":0,"content":"<unk>","special":true},
                      {"id":4,"content":"<s>","special":true}]})", "tiny");
}
std::unique_ptr<Tokenizer> make(const Json& j, const char* config = "") {
  return Tokenizer::create(tokenizer_spec_from_json(j.dump(), config));
}

}  // namespace

TEST(hostile_files) {
  CHECK((make(tiny())->encode("abc<s>", parsed) == Ids{3, 0, 4}));
  const auto refuse = [&](Status status, const char* words, auto&& edit) {
    Json j = tiny();
    edit(j);
    CHECK(throws(status, words, [&] { make(j); }));
  };
  const Status bad = Status::bad_format, no = Status::unsupported;
  refuse(bad, "leaves a hole", [](Json& j) { j["added_tokens"].push_back({{"id", 9}, {"content", "x"}}); });
  refuse(bad, "id 2147483647 of 'b' is outside", [](Json& j) { j["model"]["vocab"]["b"] = 2147483647; });
  refuse(bad, "id -1 of 'b' is outside", [](Json& j) { j["model"]["vocab"]["b"] = -1; });
  refuse(bad, "an integer is expected", [](Json& j) { j["model"]["vocab"]["b"] = 1.5; });
  refuse(bad, "id 1 is both 'a' and 'b'", [](Json& j) { j["model"]["vocab"]["b"] = 1; });
  refuse(bad, "merge 1 ('a' 'c'): 'c' is not in the vocabulary", [](Json& j) { j["model"]["merges"].push_back("a c"); });
  refuse(bad, "merge 1 ('b' 'a'): 'ba' is not in the vocabulary", [](Json& j) { j["model"]["merges"].push_back({"b", "a"}); });
  refuse(bad, "merge 1 ('ab') is not two pieces", [](Json& j) { j["model"]["merges"].push_back("ab"); });
  refuse(bad, "merge 1 ('a b c') is not two pieces", [](Json& j) { j["model"]["merges"].push_back("a b c"); });
  refuse(bad, "id 4 is '<s>' in the vocabulary and 'q'", [](Json& j) { j["added_tokens"][1]["content"] = "q"; });
  refuse(bad, "id 4 comes twice", [](Json& j) { j["added_tokens"].push_back(j["added_tokens"][1]); });
  refuse(bad, "id 5 has no token", [](Json& j) { j["model"]["vocab"][""] = 5; });
  refuse(bad, "model.vocab", [](Json& j) { j["model"].erase("vocab"); });
  refuse(bad, "model.merges", [](Json& j) { j["model"]["merges"] = 3; });
  refuse(bad, "model.unk_token 'none'", [](Json& j) { j["model"]["unk_token"] = "none"; });
  refuse(no, "Unigram", [](Json& j) { j["model"]["type"] = "Unigram"; });
  refuse(no, "normalizer: NFKC", [](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; });
  refuse(no, "pre_tokenizer: Whitespace", [](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  refuse(no, "decoder: WordPiece", [](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; });
  refuse(no, "post_processor: BertProcessing", [](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; });
  refuse(no, "\\h", [](Json& j) { j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "\\h"}}}, {"behavior", "Isolated"}}; });
  refuse(bad, "pre-tokenizer pattern 0", [](Json& j) { j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}; });
  CHECK_THROWS(bad_format, "at byte", tokenizer_spec_from_json("{\"model\":{\"vocab\":{\"a\":0", ""));
  CHECK_THROWS(bad_format, "not UTF-8", tokenizer_spec_from_json("{\"model\":{\"vocab\":{\"\xff\":0}}}", ""));
  CHECK_THROWS(bad_format, "tokenizer.json", tokenizer_spec_from_json("", ""));
  CHECK_THROWS(bad_format, "add_bos_token without", make(tiny(), R"({"add_bos_token": true})"));
  CHECK((make(tiny(), R"({"add_bos_token": true, "bos_token": "<s>"})")->encode("a", full) == Ids{4, 1}));

  GgufTokenizer parts;
  parts.model = "gpt2";
  parts.pre = "no-such";
  parts.tokens = {"a", "b", "ab"};
  parts.merges = {"a b"};
  CHECK_THROWS(unsupported, "'no-such' is unknown", tokenizer_spec_from_gguf(parts));
  parts.pre = "smollm";
  parts.token_types = {1, 1};
  CHECK_THROWS(bad_format, "2 types for 3 tokens", tokenizer_spec_from_gguf(parts));
  parts.token_types = {1, 1, 9};
  CHECK_THROWS(bad_format, "type 9 of token 2", tokenizer_spec_from_gguf(parts));
  parts.token_types = {1, 1, 1};
  parts.bos = 3;
  CHECK_THROWS(bad_format, "bos id 3", Tokenizer::create(tokenizer_spec_from_gguf(parts)));
  parts.bos = -1;
  parts.tokens[1] = "a";
  CHECK_THROWS(bad_format, "the byte 97 ('a') has several ids",
               Tokenizer::create(tokenizer_spec_from_gguf(parts)));
  parts.model = "t5";
  CHECK_THROWS(unsupported, "'t5' is unknown", tokenizer_spec_from_gguf(parts));
}

TEST(text_that_is_not_utf8) {
  const auto t = make(tiny());
  CHECK_THROWS(invalid_argument, "not UTF-8 at byte 2", t->encode("ab\xc3(", plain));
  CHECK(t->decode(Ids{-1, 1, 99, 2}, false) == "ab");
  CHECK(t->token_bytes(-1, false).empty() && t->token_bytes(99, false).empty());
}

TEST(patterns_have_a_limit) {
  Json j = tiny();
  j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+a+)+[cd]"}}}, {"behavior", "Isolated"}};
  const auto t = make(j);
  CHECK_THROWS(unsupported, "pre-tokenizer pattern 0", t->encode(std::string(4000, 'a'), plain));
}

// Ten times the text may take some ten times as long, never a hundred times.
TEST(long_texts_stay_linear) {
  const std::string shapes[] = {"a", "ab", " ", "\n", "\xcc\x81\xcc\xa3", "\xe6\x97\xa5", "<", "<|", "1",
                                "\xe2\x96\x81", "'s", " \n", "\x01", "<s><"};
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    for (const std::string& shape : shapes) {
      const auto time = [&](size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += shape;
        double best = 1e9;
        for (int i = 0; i < 2; ++i) {
          const double start = now_ms();
          t->encode(text, parsed);
          best = std::min(best, now_ms() - start);
        }
        return best;
      };
      const double small = time(20000), large = time(200000);
      if (large > 40 * (small + 1))
        std::fprintf(stderr, "  %s, %s: %.1f ms, ten times as long: %.1f ms\n", name.c_str(),
                     Json(shape).dump().c_str(), small, large);
      CHECK(large <= 40 * (small + 1));
    }
  }
}

TEST(speed) {
  std::string text;
  for (const char* path : {"/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/GPL-2",
                           "/usr/share/common-licenses/LGPL-2.1"}) {
    std::string one;
    if (read_file(path, one)) text += one;
  }
  if (text.empty()) return skip("speed: no English text in /usr/share/common-licenses");
  while (text.size() < 1000000) text += text;
  text.resize(1000000);
  for (const std::string name : tokenizer_names) {
    TokenizerSpec spec;
    double start = now_ms();
    if (!load_spec(name, spec)) continue;
    const double load = now_ms() - start;
    start = now_ms();
    const auto t = Tokenizer::create(std::move(spec));
    const double build = now_ms() - start;
    start = now_ms();
    const Ids ids = t->encode(text, plain);
    const double encode = now_ms() - start;
    start = now_ms();
    CHECK(t->decode(ids, false) == text);
    const double decode = now_ms() - start;
    std::printf("%s: spec %.0f ms, build %.0f ms, 1 MB of English: encode %.0f ms, decode %.0f ms\n",
                name.c_str(), load, build, encode, decode);
  }
}

int main(int argc, char** argv) { return text_main(argc, argv); }
