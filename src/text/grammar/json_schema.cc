#include "text/grammar/json_schema.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/json_builder.h"
#include "text/grammar/json_format.h"
#include "text/grammar/regex.h"

namespace orlop {
namespace schema {
namespace {

// Expressions that nest deeper than this are cut by rules.
constexpr size_t max_nesting = 64;

}  // namespace

Builder::Builder(Rules& rules, const OrderedJson& schema)
    : rules_(rules), doc_(schema, rules.limits()), text_(rules), merger_(doc_, rules.limits()) {}

Expr Builder::build() {
  const Together root = {2 * doc_.root()};
  if (merger_.impossible(root)) fail(Status::invalid_argument, "JSON schema: no value is valid");
  const Expr start = value(root);
  merger_.prove_disjoint();
  // One after the other, however deep the schema: rules wait here.
  while (!open_.empty()) {
    const auto [together, rule] = std::move(open_.front());
    open_.pop_front();
    const Expr e = body(together);
    rules_.define(rule, e == nothing ? rules_.choice({}) : e);
    merger_.prove_disjoint();
  }
  return start == nothing ? rules_.choice({}) : start;
}

Expr Builder::value(const Together& together) {
  if (together.empty()) return text_.value();
  if (const auto it = values_.find(together); it != values_.end()) return it->second;
  Expr e = nothing;
  if (!merger_.impossible(together)) {
    if (scalar(together)) {
      e = body(together);
    } else {
      const int32_t rule = rules_.declare("json" + doc_.path(together[0] / 2));
      e = rules_.call(rule);
      open_.emplace_back(together, rule);
    }
  }
  values_.emplace(together, e);
  return e;
}

// Without values inside, which may come back to this one.
bool Builder::scalar(const Together& together) {
  return std::ranges::all_of(merger_.shapes(together), [](const Shape& s) {
    return s.values || !(s.types & (array_type | object_type));
  });
}

Expr Builder::body(const Together& together) {
  std::vector<Expr> ways;
  std::vector<std::string> texts;
  for (const Shape& s : merger_.shapes(together)) {
    if (merger_.impossible(s)) continue;
    if (s.values) {
      add_values(s, texts, ways);
      continue;
    }
    if (s.types == any_type && s.nodes.empty()) return text_.value();
    if (s.types & null_type) texts.push_back("null");
    if (s.types & boolean_type) {
      texts.push_back("true");
      texts.push_back("false");
    }
    if (s.types & number_types) {
      std::string where = merger_.where(s, "multipleOf");
      where.resize(where.rfind('/'));
      ways.push_back(number_expr(text_, rules_, s.bounds, where));
    }
    if (s.types & string_type) ways.push_back(string(s));
    if (s.types & array_type) ways.push_back(array(s));
    if (s.types & object_type) ways.push_back(object(s));
  }
  ways.push_back(text_.one_of(texts));
  return text_.choice(std::move(ways));
}

void Builder::add_values(const Shape& shape, std::vector<std::string>& texts,
                         std::vector<Expr>& ways) {
  for (const auto& [text, v] : *shape.values) {
    if (v->is_string()) {
      texts.push_back(string_text(v->get_ref<const std::string&>()));
    } else if (v->is_structured() || v->is_number_float()) {
      ways.push_back(text_.literal(*v));
    } else {
      texts.push_back(v->dump());
    }
  }
}

Expr Builder::times(Expr what, int64_t least, int64_t most) {
  if (what == nothing) return least > 0 ? nothing : rules_.empty();
  return rules_.repeat(what, static_cast<int32_t>(least),
                       most < 0 ? Rules::unbounded : static_cast<int32_t>(most));
}

Expr Builder::in_rule(Expr body, const char* name) {
  if (body == nothing) return nothing;
  const int32_t rule = rules_.declare(name);
  rules_.define(rule, body);
  return rules_.call(rule);
}

Expr Builder::list_of(Expr one, int64_t least, int64_t most) {
  if (most == 0) return nothing;
  return seq({one, times(seq({text_.comma(), one}), std::max<int64_t>(least - 1, 0),
                         most < 0 ? most : most - 1)});
}

Expr Builder::string(const Shape& s) {
  Expr inside = nothing;
  if (const std::optional<Language>& language = merger_.strings(s)) {
    const Node::Id node = s.patterns.empty() ? s.formats[0].second : s.patterns[0].second;
    inside = language->expr(
        text_, rules_, [&](const std::vector<CharRange>& r) { return string_chars(rules_, r); },
        merger_.work(node, s.patterns.empty() ? "format" : "pattern"));
  } else if (!s.patterns.empty()) {
    inside = regex_expr(rules_, s.patterns[0].first, {.whole = false, .characters = string_chars});
  } else if (!s.formats.empty()) {
    inside = regex_expr(rules_, format_regex(s.formats[0].first, FormatUse::alone),
                        {.characters = string_chars});
  } else if (s.min_length == 0 && s.max_length < 0) {
    return text_.string();
  } else {
    inside = times(text_.string_char(), s.min_length, s.max_length);
  }
  const Expr quote = rules_.literal("\"");
  return seq({quote, inside, quote});
}

Expr Builder::array(const Shape& s) {
  const size_t prefix = merger_.prefix(s);
  const Together rest = merger_.item(s, prefix);
  if (prefix == 0 && rest.empty() && s.min_items == 0 && s.max_items < 0) return text_.array();
  const int64_t least = s.min_items;
  int64_t most = s.max_items;
  std::vector<Expr> first;  // items with a place of their own
  while (first.size() < prefix && (most < 0 || static_cast<int64_t>(first.size()) < most)) {
    const Expr e = value(merger_.item(s, first.size()));
    if (e == nothing) {
      most = static_cast<int64_t>(first.size());
      break;
    }
    first.push_back(e);
  }
  const int64_t placed = static_cast<int64_t>(first.size());
  Expr more = nothing;  // an item after those
  if (most < 0 || most > placed) {
    more = value(rest);
    if (more == nothing) most = placed;
  }
  if (most >= 0 && most < least) return nothing;
  std::vector<Expr> ways;
  if (least == 0) ways.push_back(rules_.literal("[]"));
  if (most != 0) {
    Expr items = nothing;
    if (placed == 0) {
      items = list_of(more, least, most);
    } else {
      // From the last to the second: what may follow.
      Expr tail = more == nothing
                      ? rules_.empty()
                      : times(seq({text_.comma(), more}), std::max<int64_t>(least - placed, 0),
                              most < 0 ? most : most - placed);
      size_t nesting = 0;
      for (int64_t i = placed - 1; i > 0; --i) {
        tail = seq({text_.comma(), first[static_cast<size_t>(i)], tail});
        if (i >= least) tail = text_.optional(tail);
        if (++nesting % max_nesting == 0) tail = in_rule(tail, "json.items");
      }
      items = seq({first[0], tail});
    }
    ways.push_back(seq({text_.open('['), items, text_.close(']')}));
  }
  return text_.choice(std::move(ways));
}

}  // namespace schema

Rules::Expr json_schema_expr(Rules& rules, const OrderedJson& schema) {
  return schema::Builder(rules, schema).build();
}

Rules::Expr json_object_expr(Rules& rules) {
  return schema::JsonText(rules).object();
}

Rules::Expr json_value_expr(Rules& rules) {
  return schema::JsonText(rules).value();
}

}  // namespace orlop
