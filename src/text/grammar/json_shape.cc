// The keywords of schemas that hold together, merged.
#include "text/grammar/json_shape.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"

namespace orlop::schema {
namespace {

constexpr int32_t max_search_depth = 24;  // of values that are looked into for being impossible

int64_t count_of(const OrderedJson& number) {
  const double v = number.get<double>();
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  return v >= static_cast<double>(most) ? most : static_cast<int64_t>(v);
}

void add_once(std::vector<std::pair<std::string, Node::Id>>& list, const std::string& text,
              Node::Id id) {
  for (const auto& [known, node] : list)
    if (known == text) return;
  list.emplace_back(text, id);
}

std::string path_of(const Document& doc, Node::Id id, const char* keyword) {
  return doc.path(id) + "/" + keyword;
}

}  // namespace

Work& Merger::work(Node::Id node, const char* keyword) {
  work_.where = path_of(doc_, node, keyword);
  return work_;
}

std::string Merger::where(const Shape& shape, const char* keyword) const {
  for (const Node::Id id : shape.nodes)
    if (doc_.at(id).json->contains(keyword)) return path_of(doc_, id, keyword);
  return std::string("/") + keyword;
}

Shape Merger::finish(Draft draft) {
  Shape shape;
  shape.types = draft.types;
  shape.nodes = std::move(draft.nodes);
  for (const Node::Id id : shape.nodes) merge(shape, id);
  shape.bounds.integer = !(shape.types & real_type);
  const auto crossed = [](int64_t least, int64_t most) { return most >= 0 && least > most; };
  if ((shape.types & number_types) && !possible(shape.bounds))
    shape.types &= static_cast<uint8_t>(~number_types);
  if (crossed(shape.min_length, shape.max_length))
    shape.types &= static_cast<uint8_t>(~string_type);
  if (crossed(shape.min_items, shape.max_items)) shape.types &= static_cast<uint8_t>(~array_type);
  if (crossed(shape.min_properties, shape.max_properties))
    shape.types &= static_cast<uint8_t>(~object_type);
  return shape;
}

void Merger::merge(Shape& shape, Node::Id id) {
  const OrderedJson& json = *doc_.at(id).json;
  for (auto it = json.begin(); it != json.end(); ++it) {
    const std::string& key = it.key();
    const OrderedJson& v = it.value();
    const auto at_least = [&](int64_t& least) { least = std::max(least, count_of(v)); };
    const auto at_most = [&](int64_t& most) {
      most = most < 0 ? count_of(v) : std::min(most, count_of(v));
    };
    const auto draft4_open = [&](const char* beside) {
      const auto open = json.find(beside);
      return open != json.end() && open->is_boolean() && open->get<bool>();
    };
    if (key == "enum" || key == "const") {
      restrict_values(shape, v, key == "enum");
    } else if (key == "minLength") {
      at_least(shape.min_length);
    } else if (key == "maxLength") {
      at_most(shape.max_length);
    } else if (key == "minItems") {
      at_least(shape.min_items);
    } else if (key == "maxItems") {
      at_most(shape.max_items);
    } else if (key == "minProperties") {
      at_least(shape.min_properties);
    } else if (key == "maxProperties") {
      at_most(shape.max_properties);
    } else if (key == "minimum") {
      shape.bounds.raise(decimal_of(v), draft4_open("exclusiveMinimum"));
    } else if (key == "maximum") {
      shape.bounds.lower(decimal_of(v), draft4_open("exclusiveMaximum"));
    } else if (key == "exclusiveMinimum" && v.is_number()) {
      shape.bounds.raise(decimal_of(v), true);
    } else if (key == "exclusiveMaximum" && v.is_number()) {
      shape.bounds.lower(decimal_of(v), true);
    } else if (key == "multipleOf") {
      const uint64_t more = static_cast<uint64_t>(v.get<double>());
      const uint64_t have = std::max<uint64_t>(shape.bounds.multiple, 1);
      uint64_t both = 0;
      if (__builtin_mul_overflow(have / std::gcd(have, more), more, &both) || both > max_multiple)
        fail(Status::unsupported, path_of(doc_, id, "multipleOf"),
             ": not supported: together with another multipleOf, the least common multiple is too "
             "large");
      shape.bounds.multiple = both;
    } else if (key == "pattern") {
      add_once(shape.patterns, v.get_ref<const std::string&>(), id);
    } else if (key == "format") {
      const std::string& name = v.get_ref<const std::string&>();
      if (name == "int32" || name == "int64") {  // of numbers; OpenAPI
        const bool small = name == "int32";
        shape.bounds.raise({true, small ? "2147483648" : "9223372036854775808", ""}, false);
        shape.bounds.lower({false, small ? "2147483647" : "9223372036854775807", ""}, false);
      } else if (name != "double") {  // numbers are in a double's range
        add_once(shape.formats, name, id);
      }
    } else if (key == "required") {
      for (const OrderedJson& name : v) {
        const std::string& text = name.get_ref<const std::string&>();
        if (std::ranges::find(shape.required, text) == shape.required.end())
          shape.required.push_back(text);
      }
    }
  }
}

bool Merger::impossible(const Together& together) {
  if (together.empty()) return false;
  // Found possible while it is looked into, or deep down: not found out.
  const auto [it, fresh] = impossible_.emplace(together, false);
  if (!fresh || depth_ >= max_search_depth) return it->second;
  ++depth_;
  const bool answer =
      std::ranges::all_of(shapes(together), [&](const Shape& s) { return impossible(s); });
  --depth_;
  impossible_[together] = answer;
  return answer;
}

bool Merger::impossible(const Shape& shape) {
  if (shape.types == 0) return true;
  if (shape.values) return shape.values->empty();
  if (shape.types & (null_type | boolean_type | number_types)) return false;
  if (shape.types & string_type) {
    const std::optional<Language>& language = strings(shape);
    if (!language || !language->empty()) return false;
  }
  if (shape.types & array_type) {
    const int64_t different = std::min(shape.min_items, static_cast<int64_t>(prefix(shape)) + 1);
    bool all = true;
    for (int64_t i = 0; i < different && all; ++i)
      all = !impossible(item(shape, static_cast<size_t>(i)));
    if (all) return false;
  }
  return !(shape.types & object_type) || impossible_object(shape);
}

bool Merger::impossible_object(const Shape& shape) {
  const int64_t required = static_cast<int64_t>(shape.required.size());
  if (shape.max_properties >= 0 && required > shape.max_properties) return true;
  return std::ranges::any_of(
      shape.required, [&](const std::string& name) { return impossible(key_value(shape, name)); });
}

Members Merger::members(const Shape& shape) {
  Members out;
  std::set<std::string> taken;
  const std::set<std::string> required(shape.required.begin(), shape.required.end());
  const auto add = [&](const std::string& name) {
    if (!taken.insert(name).second) return;
    Key key{name, required.contains(name), key_value(shape, name)};
    if (key.required || !impossible(key.value)) out.keys.push_back(std::move(key));
  };
  for (const Node::Id id : shape.nodes)
    for (const auto& [name, value] : doc_.at(id).properties) add(name);
  for (const std::string& name : shape.required) add(name);
  out.taken.assign(taken.begin(), taken.end());
  return out;
}

// Unless it holds for anything.
void Merger::include(Together& together, Node::Id id) const {
  const Node& node = doc_.at(id);
  if (node.never || node.types != any_type || node.plain || node.ref != Node::absent ||
      !node.all_of.empty() || !node.any_of.empty() || !node.one_of.empty())
    together.push_back(2 * id);
}

Together Merger::key_value(const Shape& shape, const std::string& key) {
  std::vector<std::string> matched;
  for (const auto& [text, node] : key_patterns(shape)) {
    StringRule& rule = pattern(text, node, "patternProperties");
    if (language(rule, node, "patternProperties").holds(key)) matched.push_back(text);
  }
  Together out;
  for (const Node::Id id : shape.nodes) {
    const Node& node = doc_.at(id);
    if (!node.members) continue;
    auto& index = properties_[id];
    if (index.size() != node.properties.size())
      for (const auto& [name, value] : node.properties) index.emplace(name, value);
    bool named = false;
    const auto add = [&](Node::Id value) {
      named = true;
      include(out, value);
    };
    if (const auto it = index.find(key); it != index.end()) add(it->second);
    for (const auto& [text, value] : node.patterns)
      if (std::ranges::find(matched, text) != matched.end()) add(value);
    if (!named && node.additional != Node::absent) include(out, node.additional);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::pair<std::string, Node::Id>> Merger::key_patterns(const Shape& shape) const {
  std::vector<std::pair<std::string, Node::Id>> out;
  for (const Node::Id id : shape.nodes)
    for (const auto& [text, value] : doc_.at(id).patterns) add_once(out, text, id);
  return out;
}

Together Merger::other_value(const Shape& shape, const std::vector<std::string>& matched) const {
  Together out;
  for (const Node::Id id : shape.nodes) {
    const Node& node = doc_.at(id);
    bool named = false;
    for (const auto& [text, value] : node.patterns)
      if (std::ranges::find(matched, text) != matched.end()) {
        named = true;
        include(out, value);
      }
    if (!named && node.additional != Node::absent) include(out, node.additional);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

size_t Merger::prefix(const Shape& shape) const {
  size_t longest = 0;
  for (const Node::Id id : shape.nodes) longest = std::max(longest, doc_.at(id).prefix.size());
  return longest;
}

Together Merger::item(const Shape& shape, size_t index) const {
  Together out;
  for (const Node::Id id : shape.nodes) {
    const Node& node = doc_.at(id);
    if (index < node.prefix.size())
      include(out, node.prefix[index]);
    else if (node.items != Node::absent)
      include(out, node.items);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace orlop::schema
