// A JSON schema as read: each subschema that the root reaches is a node, its keywords checked.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/grammar/rules.h"

namespace orlop::schema {

// Bits of a set of types. JSON Schema's "number" is real and integer.
enum Type : uint8_t {
  null_type = 1,
  boolean_type = 2,
  integer_type = 4,
  real_type = 8,  // numbers, whole ones too
  string_type = 16,
  array_type = 32,
  object_type = 64,
  any_type = 127,
};
constexpr uint8_t number_types = integer_type | real_type;

struct Node {
  using Id = int32_t;
  static constexpr Id absent = -1;
  using Named = std::pair<std::string, Id>;

  const OrderedJson* json = nullptr;
  Id parent = absent;
  std::string where;  // from the parent, as a JSON pointer
  uint8_t types = any_type;
  bool never = false;     // the schema `false`
  bool plain = false;     // has keywords of its own, beside those that name other schemas in place
  bool members = false;   // properties, patternProperties or additionalProperties
  bool elements = false;  // prefixItems or items
  Id ref = absent;
  std::vector<Id> all_of, any_of, one_of;
  std::vector<Named> properties, patterns;
  std::vector<Id> prefix;
  Id additional = absent, items = absent;
};

// RFC 6901: / and ~ of a key.
std::string pointer_token(std::string_view key);

class Document {
 public:
  // Error(unsupported): a keyword that is not supported, by its path. Error(invalid_argument): a
  // value that the keyword cannot have, a reference to nowhere, or a limit.
  Document(const OrderedJson& root, const GrammarLimits& limits);

  const Node& at(Node::Id id) const { return nodes_[static_cast<size_t>(id)]; }
  Node::Id root() const { return 0; }
  size_t size() const { return nodes_.size(); }
  std::string path(Node::Id id) const;  // "" for the root

  const GrammarLimits& limits() const { return limits_; }

 private:
  friend class Checker;
  Node::Id intern(const OrderedJson& schema, Node::Id parent, std::string where);

  std::deque<Node> nodes_;  // references to them stay good
  std::unordered_map<const OrderedJson*, Node::Id> known_;
  const GrammarLimits& limits_;
};

}  // namespace orlop::schema
