// Keywords: JSON Schema 2020-12 (Core, Validation) and draft 7; nullable: OpenAPI 3.0.3. JSON
// pointers: RFC 6901.
#include "text/grammar/json_document.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace orlop::schema {
namespace {

constexpr size_t max_nodes = 200'000;
constexpr size_t max_path = 2'000;  // of a message
// Integers from here on are read as doubles.
constexpr double max_whole = 18446744073709551616.0;

struct Reason {
  std::string_view keyword, why;
};
// Known, and said why not.
constexpr Reason refused[] = {
    {"not", "what does not match a schema is no grammar of moderate size"},
    {"if", "use anyOf with the conditions written out"},
    {"then", "use anyOf with the conditions written out"},
    {"else", "use anyOf with the conditions written out"},
    {"dependentSchemas", "which keys come is not known where the schema would apply"},
    {"dependentRequired", "use anyOf with the cases written out"},
    {"dependencies", "use anyOf with the cases written out"},
    {"contains", "an item that must come somewhere cannot be required; use prefixItems"},
    {"minContains", "needs contains"},
    {"maxContains", "needs contains"},
    {"propertyNames", "use patternProperties with additionalProperties false"},
    {"unevaluatedProperties", "use additionalProperties where the properties are"},
    {"unevaluatedItems", "use items where prefixItems are"},
    {"$anchor", "refer by JSON pointer"},
    {"$dynamicRef", "refer by $ref"},
    {"$dynamicAnchor", "refer by $ref"},
    {"$recursiveRef", "refer by $ref"},
    {"$recursiveAnchor", "refer by $ref"},
    {"contentEncoding", "what a string encodes is not looked into"},
    {"contentMediaType", "what a string encodes is not looked into"},
    {"contentSchema", "what a string encodes is not looked into"},
};
// Say nothing about which instances are valid.
constexpr std::string_view annotations[] = {
    "title",   "description", "default",       "examples",    "example",
    "$schema", "$comment",    "deprecated",    "readOnly",    "writeOnly",
    "$defs",   "definitions", "discriminator", "externalDocs"};
constexpr std::string_view types[] = {"null",   "boolean", "integer", "number",
                                      "string", "array",   "object"};
constexpr uint8_t type_bits[] = {null_type,   boolean_type, integer_type, number_types,
                                 string_type, array_type,   object_type};
constexpr std::string_view counts[] = {"minItems",  "maxItems",      "minLength",
                                       "maxLength", "minProperties", "maxProperties"};
constexpr std::string_view bounds[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum"};

template <class List>
bool among(std::string_view key, const List& list) {
  return std::ranges::find(list, key) != std::end(list);
}

bool schema_like(const OrderedJson& v) {
  return v.is_object() || v.is_boolean();
}

}  // namespace

std::string pointer_token(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out.push_back(c);
  }
  return out;
}

class Checker {
 public:
  explicit Checker(Document& document) : doc_(document) {}

  void run() {
    for (size_t id = 0; id < doc_.nodes_.size(); ++id) check(static_cast<Node::Id>(id));
  }

 private:
  void check(Node::Id id) {
    id_ = id;
    Node& node = doc_.nodes_[static_cast<size_t>(id)];
    const OrderedJson& json = *node.json;
    if (json.is_boolean()) {
      node.never = !json.get<bool>();
      return;
    }
    for (auto it = json.begin(); it != json.end(); ++it) keyword(node, it.key(), it.value());
    nullable(node, json);
    draft7_items(node, json);
    const auto exclusive = [&](const char* key, const char* beside) {
      const auto it = json.find(key);
      if (it != json.end() && it->is_boolean() && it->get<bool>() && !json.contains(beside))
        bad(key, cat("needs ", beside));
    };
    exclusive("exclusiveMinimum", "minimum");
    exclusive("exclusiveMaximum", "maximum");
  }

  void keyword(Node& node, const std::string& key, const OrderedJson& v) {
    if (among(key, annotations)) {
      if ((key == "$defs" || key == "definitions") && !v.is_object()) bad(key, "must be an object");
      return;
    }
    if (key == "$id") {
      if (id_ != doc_.root()) refuse(key, "a base for references that is not the root's");
      if (!v.is_string()) bad(key, "must be a string");
      return;
    }
    if (key == "$ref") {
      if (!v.is_string()) bad(key, "must be a string");
      node.ref = resolve(v.get_ref<const std::string&>());
      return;
    }
    if (key == "allOf") return list(node.all_of, key, v);
    if (key == "anyOf") return list(node.any_of, key, v);
    if (key == "oneOf") return list(node.one_of, key, v);
    if (key == "nullable") {
      if (!v.is_boolean()) bad(key, "must be true or false");
      return;
    }
    if (key == "type") return type(node, v);
    node.plain = true;
    if (key == "enum") {
      if (!v.is_array() || v.empty()) bad(key, "must be a list of values");
      for (const OrderedJson& one : v) values(key, one);
    } else if (key == "const") {
      values(key, v);
    } else if (key == "properties" || key == "patternProperties") {
      node.members = true;
      if (!v.is_object()) bad(key, "must be an object");
      auto& named = key == "properties" ? node.properties : node.patterns;
      for (auto it = v.begin(); it != v.end(); ++it)
        named.emplace_back(it.key(), child(it.value(), "/" + key + "/" + pointer_token(it.key())));
    } else if (key == "additionalProperties") {
      node.members = true;
      node.additional = child(v, "/" + key);
    } else if (key == "required") {
      if (!v.is_array()) bad(key, "must be a list of names");
      for (const OrderedJson& one : v)
        if (!one.is_string()) bad(key, "must be a list of names");
    } else if (key == "prefixItems") {
      node.elements = true;
      list(node.prefix, key, v);
    } else if (key == "items") {
      node.elements = true;
      if (v.is_array())
        list(node.prefix, key, v, true);
      else
        node.items = child(v, "/items");
    } else if (key == "additionalItems") {  // read with items
      if (!schema_like(v)) bad(key, "must be a schema");
    } else if (key == "uniqueItems") {
      if (!v.is_boolean()) bad(key, "must be true or false");
      if (v.get<bool>() && !short_array(*node.json))
        refuse(key, "no grammar of moderate size tells equal items apart");
    } else if (among(key, counts)) {
      const bool whole =
          v.is_number() && v.get<double>() >= 0 && std::floor(v.get<double>()) == v.get<double>();
      if (!whole) bad(key, "must be a whole number from 0 up");
    } else if (among(key, bounds)) {
      if (!v.is_number() && !(v.is_boolean() && key.starts_with("exclusive")))
        bad(key, "must be a number");
      const double size = v.is_number_float() ? std::abs(v.get<double>()) : 0;
      if (size >= max_whole && size < 1e40)  // from there on it is no bound
        refuse(key, "a number beyond 64 bits, whose digits are not all read");
    } else if (key == "multipleOf") {
      if (!v.is_number() || v.get<double>() <= 0) bad(key, "must be a number above 0");
      const double n = v.get<double>();
      if (std::floor(n) != n)
        refuse(key, "not a whole number; binary fractions have no exact decimal multiples");
      if (n > 1e15) refuse(key, "beyond 1e15");
    } else if (key == "pattern") {
      if (!v.is_string()) bad(key, "must be a string");
    } else if (key == "format") {
      if (!v.is_string()) bad(key, "must be a string");
    } else {
      for (const Reason& r : refused)
        if (r.keyword == key) refuse(key, r.why);
      unknown(key);
    }
  }

  void type(Node& node, const OrderedJson& v) {
    node.types = 0;
    const auto add = [&](const OrderedJson& name) {
      const auto it = name.is_string()
                          ? std::ranges::find(types, name.get_ref<const std::string&>())
                          : std::end(types);
      if (it == std::end(types))
        bad("type",
            cat("must be null, boolean, integer, number, string, array or object, not ",
                name.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).substr(0, 100)));
      node.types |= type_bits[it - std::begin(types)];
    };
    if (v.is_array()) {
      if (v.empty()) bad("type", "must name a type");
      for (const OrderedJson& one : v) add(one);
    } else {
      add(v);
    }
  }

  // OpenAPI 3.0.3 (proposal "Clarify Nullable"): adds null to the `type` beside it, and does
  // nothing else.
  void nullable(Node& node, const OrderedJson& json) {
    const auto it = json.find("nullable");
    if (it == json.end() || !it->get<bool>()) return;
    if (!json.contains("type"))
      refuse("nullable",
             "it has a meaning only beside type; write anyOf with {\"type\": \"null\"}");
    node.types |= null_type;
  }

  // Draft 7: a list of items is prefixItems, additionalItems the items after them.
  void draft7_items(Node& node, const OrderedJson& json) {
    const auto items = json.find("items");
    const bool list = items != json.end() && items->is_array();
    if (list && json.contains("prefixItems")) bad("items", "must be a schema beside prefixItems");
    const auto more = json.find("additionalItems");
    if (more == json.end()) return;
    if (!list) refuse("additionalItems", "it has a meaning only beside a list of items");
    node.items = child(*more, "/additionalItems");
  }

  static bool short_array(const OrderedJson& json) {
    const auto it = json.find("maxItems");
    return it != json.end() && it->is_number() && it->get<double>() <= 1;
  }

  void list(std::vector<Node::Id>& out, const std::string& key, const OrderedJson& v,
            bool may_be_empty = false) {
    if (!v.is_array() || (v.empty() && !may_be_empty)) bad(key, "must be a list of schemas");
    for (size_t i = 0; i < v.size(); ++i) out.push_back(child(v[i], cat("/", key, "/", i)));
  }

  Node::Id child(const OrderedJson& v, std::string where) {
    if (!schema_like(v))
      fail(Status::invalid_argument, doc_.path(id_), where,
           ": must be a schema (an object, true or false)");
    return doc_.intern(v, id_, std::move(where));
  }

  Node::Id resolve(const std::string& ref) {
    std::string_view pointer = ref;
    const OrderedJson& root = *doc_.at(doc_.root()).json;
    if (const auto id = root.find("$id"); id != root.end() && id->is_string()) {
      std::string_view base = id->get_ref<const std::string&>();
      base = base.substr(0, base.find('#'));
      if (!base.empty() && pointer.starts_with(base) &&
          (pointer.size() == base.size() || pointer[base.size()] == '#'))
        pointer.remove_prefix(base.size());
    }
    const std::string shown = ref.substr(0, 200);
    if (!pointer.empty() && pointer[0] != '#')
      refuse("$ref", cat("\"", shown, "\" lies in another document"));
    if (!pointer.empty()) pointer.remove_prefix(1);
    if (!pointer.empty() && pointer[0] != '/')
      refuse("$ref", cat("\"", shown, "\" is no JSON pointer (#/...)"));
    const OrderedJson* at = &root;
    std::string where;
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const size_t end = std::min(pointer.find('/'), pointer.size());
      const std::string token = unescaped(pointer.substr(0, end), shown);
      pointer.remove_prefix(end);
      const OrderedJson* next = nullptr;
      if (at->is_object()) {
        next = member(*at, token);
      } else if (at->is_array()) {
        size_t index = 0;
        const auto r = std::from_chars(token.data(), token.data() + token.size(), index);
        const bool whole = r.ec == std::errc() && r.ptr == token.data() + token.size() &&
                           (token.size() == 1 || token[0] != '0');
        if (whole && index < at->size()) next = &(*at)[index];
      }
      if (!next) bad("$ref", cat("\"", shown, "\" leads nowhere"));
      where += "/" + pointer_token(token);
      at = next;
    }
    if (!schema_like(*at)) bad("$ref", cat("\"", shown, "\" is no schema"));
    return doc_.intern(*at, Node::absent, std::move(where));
  }

  // Objects of ordered keys are searched one by one: large ones that many references go through are
  // indexed.
  const OrderedJson* member(const OrderedJson& object, const std::string& key) {
    if (object.size() <= 16) {
      const auto it = object.find(key);
      return it == object.end() ? nullptr : &*it;
    }
    auto& index = indexes_[&object];
    if (index.empty())
      for (auto it = object.begin(); it != object.end(); ++it) index.emplace(it.key(), &*it);
    const auto it = index.find(key);
    return it == index.end() ? nullptr : it->second;
  }

  // %XX of the fragment, then ~1 and ~0 of the pointer.
  std::string unescaped(std::string_view token, const std::string& shown) {
    std::string bytes, out;
    for (size_t i = 0; i < token.size(); ++i) {
      unsigned code = 0;
      if (token[i] != '%') {
        bytes.push_back(token[i]);
        continue;
      }
      const auto hex = token.substr(i + 1, 2);
      const auto r = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      if (hex.size() != 2 || r.ptr != hex.data() + 2)
        bad("$ref", cat("\"", shown, "\": a % without two hex digits"));
      bytes.push_back(static_cast<char>(code));
      i += 2;
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != '~') {
        out.push_back(bytes[i]);
        continue;
      }
      const char next = i + 1 < bytes.size() ? bytes[i + 1] : 0;
      if (next != '0' && next != '1') bad("$ref", cat("\"", shown, "\": a ~ without 0 or 1"));
      out.push_back(next == '0' ? '~' : '/');
      ++i;
    }
    return out;
  }

  void values(const std::string& key, const OrderedJson& value) {
    std::vector<std::pair<const OrderedJson*, int32_t>> open = {{&value, 1}};
    while (!open.empty()) {
      const auto [v, level] = open.back();
      open.pop_back();
      if (level > doc_.limits_.max_depth)
        fail(Status::invalid_argument, doc_.path(id_), "/", key, ": nested deeper than ",
             doc_.limits_.max_depth, " (max_depth)");
      if (v->is_number_float() && std::abs(v->get<double>()) >= max_whole)
        refuse(key, "a number beyond 64 bits, whose digits are not all read");
      if (v->is_structured())
        for (const OrderedJson& one : *v) open.emplace_back(&one, level + 1);
    }
  }

  [[noreturn]] void bad(std::string_view key, std::string_view why) {
    fail(Status::invalid_argument, doc_.path(id_), "/", pointer_token(key), ": ", why);
  }
  [[noreturn]] void refuse(std::string_view key, std::string_view why) {
    fail(Status::unsupported, doc_.path(id_), "/", pointer_token(key), ": not supported: ", why);
  }
  [[noreturn]] void unknown(std::string_view key) {
    std::vector<std::string_view> all = {"$id",
                                         "$ref",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "nullable",
                                         "type",
                                         "enum",
                                         "const",
                                         "properties",
                                         "patternProperties",
                                         "additionalProperties",
                                         "required",
                                         "prefixItems",
                                         "items",
                                         "uniqueItems",
                                         "multipleOf",
                                         "pattern",
                                         "format"};
    all.insert(all.end(), std::begin(counts), std::end(counts));
    all.insert(all.end(), std::begin(bounds), std::end(bounds));
    all.insert(all.end(), std::begin(annotations), std::end(annotations));
    const std::string near = nearest_key(key, all);
    fail(Status::unsupported, doc_.path(id_), "/", pointer_token(key.substr(0, 100)),
         ": not supported: unknown keyword", near.empty() ? "" : " (did you mean " + near + "?)");
  }

  Document& doc_;
  Node::Id id_ = 0;
  std::unordered_map<const OrderedJson*, std::unordered_map<std::string, const OrderedJson*>>
      indexes_;
};

Document::Document(const OrderedJson& root, const GrammarLimits& limits) : limits_(limits) {
  if (!schema_like(root))
    fail(Status::invalid_argument, "JSON schema: must be an object, true or false");
  intern(root, Node::absent, "");
  Checker(*this).run();
}

Node::Id Document::intern(const OrderedJson& schema, Node::Id parent, std::string where) {
  const auto [it, fresh] = known_.emplace(&schema, static_cast<Node::Id>(nodes_.size()));
  if (fresh) {
    if (nodes_.size() >= max_nodes)
      fail(Status::invalid_argument, "JSON schema: more than ", max_nodes, " subschemas");
    nodes_.emplace_back();
    nodes_.back().json = &schema;
    nodes_.back().parent = parent;
    nodes_.back().where = std::move(where);
  }
  return it->second;
}

std::string Document::path(Node::Id id) const {
  std::vector<std::string_view> parts;
  for (; id != Node::absent; id = at(id).parent) parts.push_back(at(id).where);
  std::string out;
  for (size_t i = parts.size(); i-- > 0;) out += parts[i];
  if (out.size() > max_path)
    out = out.substr(0, max_path / 2) + "..." + out.substr(out.size() - max_path / 2);
  return out;
}

}  // namespace orlop::schema
