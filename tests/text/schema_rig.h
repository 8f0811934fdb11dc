// JSON Schema as grammar, for tests: which texts it takes.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "../check.h"
#include "grammar_sampler.h"
#include "text/grammar/guide.h"
#include "text/grammar/json_schema.h"

namespace orlop::test {

inline OrderedJson json_of(std::string_view text) {
  return parse_ordered_json(text, "test", {.max_depth = 2000});
}

inline Rules schema_rules(const OrderedJson& schema) {
  Rules rules;
  rules.set_root(json_schema_expr(rules, schema));
  return rules;
}

class SchemaGuide {
 public:
  explicit SchemaGuide(const char* schema) : SchemaGuide(json_of(schema)) {}
  explicit SchemaGuide(const OrderedJson& schema)
      : rules_(schema_rules(schema)), guide_(Guide::create(rules_, nullptr)) {}

  bool takes(std::string_view text) const {
    Guide::State state = guide_->start();
    const bool all = guide_->push_bytes(state, text) == text.size() && guide_->complete(state);
    guide_->release(state);
    return all;
  }
  // The first text of which this does not hold, with a word before it; "" when there is none.
  std::string wrong(std::initializer_list<std::string_view> good,
                    std::initializer_list<std::string_view> bad) const {
    for (const std::string_view text : good)
      if (!takes(text)) return "refused: " + std::string(text);
    for (const std::string_view text : bad)
      if (takes(text)) return "taken: " + std::string(text);
    return "";
  }
  std::string sample(std::mt19937_64& random, int32_t steps = 300) const {
    return GrammarSampler(rules_).sample(random, steps);
  }
  const Rules& rules() const { return rules_; }

 private:
  Rules rules_;
  std::shared_ptr<Guide> guide_;
};

// What keeps a schema from being a grammar.
inline std::string refusal(std::string_view schema, Status status = Status::unsupported) {
  try {
    schema_rules(json_of(schema));
  } catch (const Error& e) {
    return e.status() == status ? e.text()
                                : cat("status ", static_cast<int>(e.status()), ": ", e.text());
  }
  return "not refused";
}

}  // namespace orlop::test

// What good and bad texts show: CHECK_TEXTS(schema, good, bad).
#define CHECK_TEXTS(schema, ...)                                                     \
  do {                                                                               \
    const std::string wrong = ::orlop::test::SchemaGuide(schema).wrong(__VA_ARGS__); \
    if (!wrong.empty()) {                                                            \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, wrong.c_str());        \
      ++::orlop::test::failures();                                                   \
    }                                                                                \
  } while (false)
#define CHECK_REFUSED(schema, start)                                        \
  do {                                                                      \
    const std::string got = ::orlop::test::refusal(schema);                 \
    if (!got.starts_with(start)) {                                          \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, got.c_str()); \
      ++::orlop::test::failures();                                          \
    }                                                                       \
  } while (false)
#define CHECK_INVALID(schema, start)                                                           \
  do {                                                                                         \
    const std::string got = ::orlop::test::refusal(schema, ::orlop::Status::invalid_argument); \
    if (!got.starts_with(start)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, got.c_str());                    \
      ++::orlop::test::failures();                                                             \
    }                                                                                          \
  } while (false)
