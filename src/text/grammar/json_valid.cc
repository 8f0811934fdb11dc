// Values of enum and const against the other keywords; conditions on strings.
#include <algorithm>

#include "base/error.h"
#include "text/grammar/json_format.h"
#include "text/grammar/json_shape.h"
#include "text/grammar/regex.h"
#include "text/utf8.h"

namespace orlop::schema {
namespace {

// Errors of a regular expression with the keyword's path before them.
template <class F>
Expr at_path(const std::string& path, F&& make) {
  try {
    return make();
  } catch (const Error& e) {
    throw Error(e.status(), path + ": " + e.text());
  }
}

uint8_t type_of(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return null_type;
    case OrderedJson::value_t::boolean:
      return boolean_type;
    case OrderedJson::value_t::string:
      return string_type;
    case OrderedJson::value_t::array:
      return array_type;
    case OrderedJson::value_t::object:
      return object_type;
    default:
      return decimal_of(value).integral() ? number_types : uint8_t{real_type};
  }
}

bool within(size_t n, int64_t least, int64_t most) {
  return static_cast<int64_t>(n) >= least && (most < 0 || static_cast<int64_t>(n) <= most);
}

}  // namespace

std::string canonical(const OrderedJson& value) {
  if (value.is_number()) return decimal_of(value).text();
  if (value.is_string()) return string_text(value.get_ref<const std::string&>());
  if (value.is_array()) {
    std::string out = "[";
    for (const OrderedJson& one : value) out += canonical(one) + ",";
    return out + "]";
  }
  if (value.is_object()) {
    std::vector<std::string> members;
    for (auto it = value.begin(); it != value.end(); ++it)
      members.push_back(string_text(it.key()) + ":" + canonical(it.value()));
    std::ranges::sort(members);
    std::string out = "{";
    for (const std::string& m : members) out += m + ",";
    return out + "}";
  }
  return value.dump();
}

void Merger::restrict_values(Shape& shape, const OrderedJson& values, bool list) {
  std::map<std::string, const OrderedJson*> allowed;
  if (list)
    for (const OrderedJson& v : values) allowed.emplace(canonical(v), &v);
  else
    allowed.emplace(canonical(values), &values);
  if (!shape.values)
    shape.values = std::move(allowed);
  else
    std::erase_if(*shape.values, [&](const auto& v) { return !allowed.contains(v.first); });
}

bool Merger::valid(const OrderedJson& value, const Together& together) {
  if (together.empty()) return true;
  std::string text;  // once made
  return std::ranges::any_of(expanded(together), [&](const Shape& s) {
    if (s.values && text.empty()) text = canonical(value);
    return (!s.values || s.values->contains(text)) && fits(value, s);
  });
}

bool Merger::fits(const OrderedJson& value, const Shape& shape) {
  if (!(type_of(value) & shape.types)) return false;
  if (value.is_number()) return shape.bounds.contains(decimal_of(value));
  if (value.is_string()) return valid_string(value.get_ref<const std::string&>(), shape);
  if (value.is_array()) {
    if (!within(value.size(), shape.min_items, shape.max_items)) return false;
    for (size_t i = 0; i < value.size(); ++i)
      if (!valid(value[i], item(shape, i))) return false;
    return true;
  }
  return !value.is_object() || valid_object(value, shape);
}

bool Merger::valid_string(const std::string& value, const Shape& shape) {
  size_t length = 0;
  for (size_t pos = 0; pos < value.size(); ++length)
    pos += std::max(utf8_step(value, pos).length, 1u);
  if (!within(length, shape.min_length, shape.max_length)) return false;
  for (const auto& [text, node] : shape.patterns)
    if (!language(pattern(text, node, "pattern"), node, "pattern").holds(value)) return false;
  for (const auto& [name, node] : shape.formats)
    if (!language(format(name, node), node, "format").holds(value)) return false;
  return true;
}

bool Merger::valid_object(const OrderedJson& value, const Shape& shape) {
  if (!within(value.size(), shape.min_properties, shape.max_properties)) return false;
  for (const std::string& name : shape.required)
    if (!value.contains(name)) return false;
  for (auto it = value.begin(); it != value.end(); ++it)
    if (!valid(it.value(), key_value(shape, it.key()))) return false;
  return true;
}

StringRule& Merger::pattern(const std::string& pattern, Node::Id node, const char* keyword) {
  auto it = patterns_.find(pattern);
  if (it == patterns_.end()) {
    const std::string path = doc_.path(node) + "/" + keyword;
    const Expr plain =
        at_path(path, [&] { return regex_expr(scratch_, pattern, {.whole = false}); });
    it = patterns_.emplace(pattern, StringRule{plain, length_range(scratch_, plain), {}}).first;
  }
  return it->second;
}

StringRule& Merger::format(const std::string& name, Node::Id node, bool counted) {
  const std::string key = (counted ? "counted " : "") + name;
  auto it = formats_.find(key);
  if (it == formats_.end()) {
    const std::string path = doc_.path(node) + "/format";
    if (format_regex(name, FormatUse::any).empty())
      fail(Status::unsupported, path, ": not supported: \"", name.substr(0, 100), "\"; known are ",
           format_names());
    const auto plain = [&](FormatUse use) {
      return at_path(path, [&] { return regex_expr(scratch_, format_regex(name, use)); });
    };
    const LengthRange alone = length_range(scratch_, plain(FormatUse::alone));
    const Expr e = plain(counted ? FormatUse::counted : FormatUse::any);
    it = formats_.emplace(key, StringRule{e, alone, {}}).first;
  }
  return it->second;
}

const Language& Merger::language(StringRule& rule, Node::Id node, const char* keyword) {
  if (!rule.language) rule.language = Language::of(scratch_, rule.plain, work(node, keyword));
  return *rule.language;
}

const std::optional<Language>& Merger::strings(const Shape& shape) {
  std::string key = cat(shape.min_length, " ", shape.max_length);
  for (const auto* list : {&shape.patterns, &shape.formats})
    for (const auto& [text, node] : *list)
      key += cat(" ", list == &shape.patterns, text.size(), " ", text);
  if (const auto it = strings_.find(key); it != strings_.end()) return it->second;
  std::optional<Language>& out = strings_[key];
  std::vector<const Language*> all;
  std::vector<std::pair<StringRule*, std::pair<Node::Id, const char*>>> rules;
  for (const auto& [text, node] : shape.patterns)
    rules.push_back({&pattern(text, node, "pattern"), {node, "pattern"}});
  for (const auto& [name, node] : shape.formats)
    rules.push_back({&format(name, node), {node, "format"}});
  if (rules.empty()) return out;
  // A length that a rule keeps anyway is no condition.
  int64_t least = shape.min_length, most = shape.max_length;
  for (const auto& [rule, at] : rules) {
    if (rule->length.least >= shape.min_length) least = 0;
    if (rule->length.most >= 0 && rule->length.most <= shape.max_length) most = -1;
  }
  const bool bounded = least > 0 || most >= 0;
  if (rules.size() == 1 && !bounded) return out;
  if (bounded)
    for (size_t i = 0; i < shape.formats.size(); ++i)
      rules[shape.patterns.size() + i].first =
          &format(shape.formats[i].first, shape.formats[i].second, true);
  for (const auto& [rule, at] : rules) all.push_back(&language(*rule, at.first, at.second));
  const auto [node, keyword] = rules.back().second;
  if (all.size() > 60)
    fail(Status::unsupported, doc_.path(node), "/", keyword,
         ": not supported: more than 60 at once");
  Work& cost = work(node, keyword);
  Language both = all.size() == 1 ? *all[0] : Language::product(all, true, cost);
  if (!bounded) return out = std::move(both);
  cost.where += " with a length";
  return out = both.within(least, most, cost);
}

}  // namespace orlop::schema
