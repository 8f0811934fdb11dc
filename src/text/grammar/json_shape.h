// Subschemas that hold for one value together, brought to alternatives (shapes) that have no anyOf,
// oneOf, allOf or $ref any more.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/json_document.h"
#include "text/grammar/json_language.h"
#include "text/grammar/json_number.h"

namespace orlop::schema {

// Subschemas that all hold, sorted; none: anything does. An entry is 2 * node, or 2 * node + 1 for
// the node's own keywords without the schemas that it names in place.
using Together = std::vector<int32_t>;

// One way for a value to be valid.
struct Shape {
  uint8_t types = any_type;
  std::vector<Node::Id> nodes;  // whose own keywords hold, in the order that they were met
  // What these say together; -1: no bound.
  std::optional<std::map<std::string, const OrderedJson*>> values;  // enum, const; by canonical()
  NumberBounds bounds;
  int64_t min_length = 0, max_length = -1;
  std::vector<std::pair<std::string, Node::Id>> patterns, formats;  // each once
  int64_t min_items = 0, max_items = -1;
  int64_t min_properties = 0, max_properties = -1;
  std::vector<std::string> required;  // each once
};

// A key of an object that has its place in the order.
struct Key {
  std::string name;
  bool required = false;
  Together value;
};
struct Members {
  std::vector<Key> keys;           // those that may come
  std::vector<std::string> taken;  // names that the keys after these must not have
};

// A pattern or format.
struct StringRule {
  Expr plain;                        // in Merger's own rules, without JSON's escapes
  LengthRange length;                // when it stands alone
  std::optional<Language> language;  // when it was asked for
};

// Equal texts for values that JSON Schema calls equal.
std::string canonical(const OrderedJson& value);

class Merger {
 public:
  Merger(const Document& document, const GrammarLimits& limits);

  // No shape: no value is valid. Some may be impossible all the same.
  const std::vector<Shape>& shapes(const Together& together);
  // Of every oneOf that shapes were made of: Error(unsupported) unless no value can match two of
  // its schemas, so that it is an anyOf.
  void prove_disjoint();
  // False where it is not found out.
  bool impossible(const Shape& shape);
  bool impossible(const Together& together);
  bool valid(const OrderedJson& value, const Together& together);

  Members members(const Shape& shape);
  // patternProperties of all nodes, each once.
  std::vector<std::pair<std::string, Node::Id>> key_patterns(const Shape& shape) const;
  // What the value of a key that is not taken must be, which matches these of key_patterns.
  Together other_value(const Shape& shape, const std::vector<std::string>& matched) const;
  size_t prefix(const Shape& shape) const;  // items from this index on are alike
  Together item(const Shape& shape, size_t index) const;

  StringRule& pattern(const std::string& pattern, Node::Id node, const char* keyword);
  StringRule& format(const std::string& name, Node::Id node, bool counted = false);
  const Language& language(StringRule& rule, Node::Id node, const char* keyword);
  // All that a shape says of strings, when that is more than a length or one rule.
  const std::optional<Language>& strings(const Shape& shape);

  const Document& document() const { return doc_; }
  Work& work(Node::Id node, const char* keyword);
  // The path of this keyword in a node of the shape that has it.
  std::string where(const Shape& shape, const char* keyword) const;

 private:
  struct Draft {
    uint8_t types = any_type;
    std::vector<Node::Id> nodes;
    std::vector<Node::Id> done;  // nodes that are in already, with all they name
  };
  using Drafts = std::vector<Draft>;

  void spend(uint64_t steps, Node::Id id);
  void own(Drafts& drafts, Node::Id id);
  void apply(Drafts& drafts, Node::Id id);
  void either(Drafts& drafts, Node::Id id, const std::vector<Node::Id>& options);
  const std::vector<Shape>& expanded(const Together& together);
  void prove_disjoint(Node::Id id);
  bool different_values(const std::vector<Node::Id>& options) const;

  Shape finish(Draft draft);
  void merge(Shape& shape, Node::Id id);
  void restrict_values(Shape& shape, const OrderedJson& values, bool list);
  bool impossible_object(const Shape& shape);
  void include(Together& together, Node::Id id) const;

  bool fits(const OrderedJson& value, const Shape& shape);  // all but enum and const
  bool valid_string(const std::string& value, const Shape& shape);
  bool valid_object(const OrderedJson& value, const Shape& shape);
  Together key_value(const Shape& shape, const std::string& key);

  const Document& doc_;
  Rules scratch_;
  Work work_;
  uint64_t budget_ = 4'000'000;
  std::map<Together, std::vector<Shape>> expanded_, shapes_;
  std::map<Together, bool> impossible_;
  std::set<Node::Id> one_of_;       // met
  std::vector<Node::Id> unproved_;  // of these
  std::map<std::string, StringRule> patterns_, formats_;
  std::map<std::string, std::optional<Language>> strings_;
  std::map<Node::Id, std::map<std::string_view, Node::Id>> properties_;
  std::vector<Node::Id> stack_;  // nodes in place that are being applied
  int32_t depth_ = 0;
};

}  // namespace orlop::schema
