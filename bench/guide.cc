// What guided decoding costs a token: the time to find the mask of allowed tokens, and to take a
// token, for JSON schemas of the usual kinds over a vocabulary of 128,000 tokens. For each schema:
// a typical text by a new guide ("first"), the same once more ("again": all masks are known), then
// texts of random allowed tokens by a new guide ("random": every state that chance can find). One
// thread, its processor time, no model. usage: bench_guide [tokenizer.json [rounds of random
// texts]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar/guide.h"
#include "text/grammar/source.h"
#include "text/tokenizer.h"

using namespace orlop;

namespace {

struct Case {
  const char* name;
  GuideKind kind;
  const char* source;
  const char* text;
};

const Case cases[] = {
    {"any object", GuideKind::json_object, "",
     R"({"name": "A small example", "values": [1, 2.5, -3e10, null, true], "nested": {"deep": [{"a": []}, {"b": {"c": "d"}}]}, "last": "the end"})"},
    {"free strings", GuideKind::json_schema,
     R"({"type":"object","properties":{"title":{"type":"string"},"summary":{"type":"string"},"author":{"type":"string"}},"required":["title","summary","author"],"additionalProperties":false})",
     R"({"title": "On the care of grapes", "summary": "Grapes want sun, and water, and a \"gentle\" hand.\nÀ bientôt, said the gardener; 東京 is far.", "author": "N. N."})"},
    {"lengths", GuideKind::json_schema,
     R"({"type":"object","properties":{"id":{"type":"string","minLength":8,"maxLength":64},"note":{"type":"string","maxLength":200},"tag":{"type":"string","maxLength":16}},"required":["id","note","tag"],"additionalProperties":false})",
     R"({"id": "a-rather-long-identifier-0042", "note": "A note has some words, not too many, and ends well before the limit of what is allowed here.", "tag": "short one"})"},
    {"numbers, enums", GuideKind::json_schema,
     R"({"type":"object","properties":{"kind":{"enum":["circle","square","triangle"]},"size":{"type":"number"},"count":{"type":"integer","minimum":0,"maximum":1000},"on":{"type":"boolean"},"when":{"type":"string","format":"date-time"}},"required":["kind","size","count","on","when"],"additionalProperties":false})",
     R"({"kind": "triangle", "size": -12.75, "count": 421, "on": false, "when": "2024-02-29T12:30:00Z"})"},
    {"arrays of objects", GuideKind::json_schema,
     R"({"type":"object","properties":{"items":{"type":"array","minItems":1,"maxItems":20,"items":{"type":"object","properties":{"name":{"type":"string"},"price":{"type":"number"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","price","tags"],"additionalProperties":false}}},"required":["items"],"additionalProperties":false})",
     R"({"items": [{"name": "a lamp", "price": 12.5, "tags": ["light", "home"]}, {"name": "a chair", "price": 40, "tags": []}, {"name": "a table of oak", "price": 310.99, "tags": ["wood", "home", "heavy"]}, {"name": "a cup", "price": 3, "tags": ["blue"]}]})"},
    {"recursive", GuideKind::json_schema,
     R"({"$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value","children"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
     R"({"value": "root", "children": [{"value": "left", "children": [{"value": "leaf", "children": []}]}, {"value": "right", "children": [{"value": "inner", "children": [{"value": "leaf", "children": []}]}]}]})"},
    {"patterns", GuideKind::json_schema,
     R"({"type":"object","properties":{"word":{"type":"string","pattern":"^\\p{L}[\\p{L}\\p{N}_-]*$"},"code":{"type":"string","pattern":"^[A-Z]{3}-\\d{4}$"},"has":{"type":"string","pattern":"not|never"}},"required":["word","code","has"],"additionalProperties":false})",
     R"({"word": "Gärtner_42", "code": "ABC-0042", "has": "It is said that one never should."})"},
    {"a regex", GuideKind::regex, R"((\w+ ){2,20}\w+[.!?]( .*)?)",
     R"(The gardener waters all of it. Then rests, and so on.)"},
};

// Time of this thread on a processor: what else the machine does is not what is measured.
double now_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

struct Times {
  std::vector<double> mask, push;
  void add(const Times& other) {
    mask.insert(mask.end(), other.mask.begin(), other.mask.end());
    push.insert(push.end(), other.push.begin(), other.push.end());
  }
};
double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5);
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(at), v.end());
  return v[at];
}
void print(const char* name, const char* what, const Times& t) {
  std::printf(
      "%-18s %-7s %6zu tokens   mask us: median %7.1f  p99 %7.1f  max %7.1f   push us: median "
      "%5.2f  p99 %6.2f\n",
      name, what, t.mask.size(), quantile(t.mask, 0.5), quantile(t.mask, 0.99), quantile(t.mask, 1),
      quantile(t.push, 0.5), quantile(t.push, 0.99));
}

class Run {
 public:
  Run(Guide& guide, const TokenTrie& trie)
      : guide_(guide), mask_(static_cast<size_t>(trie.words())), state_(guide.start()) {}
  ~Run() { guide_.release(state_); }
  const std::vector<uint32_t>& mask() {
    const double start = now_us();
    guide_.mask(state_, mask_.data());
    times.mask.push_back(now_us() - start);
    return mask_;
  }
  bool push(int32_t token) {
    const double start = now_us();
    const bool ok = guide_.push(state_, token);
    times.push.push_back(now_us() - start);
    return ok;
  }
  bool exhausted() { return guide_.exhausted(state_); }
  bool complete() { return guide_.complete(state_); }
  Times times;

 private:
  Guide& guide_;
  std::vector<uint32_t> mask_;
  Guide::State state_;
};

Times typical(Guide& guide, const TokenTrie& trie, const std::vector<int32_t>& ids, const Case& c) {
  Run run(guide, trie);
  for (const int32_t t : ids) {
    const auto& mask = run.mask();
    const auto i = static_cast<uint32_t>(t);
    if (!(mask[i / 32] >> (i % 32) & 1) || !run.push(t))
      fail(Status::internal, c.name, ": its own text is refused after ", run.times.push.size(),
           " tokens");
  }
  if (!run.complete()) fail(Status::internal, c.name, ": its own text is not complete");
  return run.times;
}

// At most 200 tokens of those allowed. As a model would, ends strings sooner than chance does: half
// of the time a token of few bytes is taken.
Times random_text(Guide& guide, const TokenTrie& trie, const Tokenizer& tokenizer,
                  std::mt19937& rng) {
  Run run(guide, trie);
  for (int i = 0; i < 200 && !run.exhausted(); ++i) {
    const auto& mask = run.mask();
    std::vector<int32_t> all, brief;
    for (int32_t t = 0; t < trie.vocab(); ++t) {
      if (!(mask[static_cast<uint32_t>(t) / 32] >> (t % 32) & 1)) continue;
      const size_t size = tokenizer.token_bytes(t, true).size();
      if (size == 0) continue;
      all.push_back(t);
      if (size == 1) brief.push_back(t);
    }
    if (all.empty()) fail(Status::internal, "a dead end");
    const auto& from = brief.empty() || rng() % 2 ? all : brief;
    if (!run.push(from[rng() % from.size()]))
      fail(Status::internal, "a token of the mask is refused");
  }
  return run.times;
}

int bench(const std::string& path, int rounds) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::printf("no %s (scripts/fetch_tokenizers.py fetches it)\n", path.c_str());
    return 77;
  }
  const std::string json(std::istreambuf_iterator<char>(in), {});
  const auto tokenizer = Tokenizer::create(tokenizer_spec_from_json(json, ""));
  double start = now_us();
  const auto trie =
      TokenTrie::build(*tokenizer, tokenizer->vocab_size(), {tokenizer->vocab_size() - 1});
  std::printf("%d tokens; their tree: %.1f ms, %.1f MB\n", trie->vocab(), (now_us() - start) / 1e3,
              static_cast<double>(trie->bytes()) / 1e6);
  Times first, again, random;
  std::mt19937 rng(1);
  for (const Case& c : cases) {
    start = now_us();
    const Rules rules = guide_rules(c.kind, c.source);
    const double parsed = now_us() - start;
    start = now_us();
    auto guide = Guide::create(rules, trie);
    const double compiled = now_us() - start;
    const auto ids = tokenizer->encode(c.text, {});
    const Times a = typical(*guide, *trie, ids, c), b = typical(*guide, *trie, ids, c);
    print(c.name, "first", a);
    print(c.name, "again", b);
    const double grown = static_cast<double>(guide->bytes()) / 1e6;
    guide = Guide::create(rules, trie);
    Times r;
    for (int i = 0; i < rounds; ++i) r.add(random_text(*guide, *trie, *tokenizer, rng));
    print(c.name, "random", r);
    std::printf(
        "%-18s rules %.2f ms, automaton %.2f ms, %.1f MB after the text, %.1f MB after random "
        "ones\n",
        c.name, parsed / 1e3, compiled / 1e3, grown, static_cast<double>(guide->bytes()) / 1e6);
    first.add(a), again.add(b), random.add(r);
  }
  print("all", "first", first);
  print("all", "again", again);
  print("all", "random", random);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1]
                                    : ORLOP_SOURCE_ROOT
                               "/.cache/tokenizers/llama3_1/package/models/tokenizer.json";
  try {
    return bench(path, argc > 2 ? std::atoi(argv[2]) : 20);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_guide: %s\n", e.text().c_str());
    return 1;
  }
}
