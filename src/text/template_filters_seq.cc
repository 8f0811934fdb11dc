#include <algorithm>
#include <set>

#include "text/template_filters.h"
#include "text/template_string.h"

namespace orlop::tmpl {

Getter::Getter(Interp& in, const Value* attribute) : in_(in) {
  if (!attribute || attribute->is(Kind::none)) return;
  if (!attribute->is(Kind::string)) {
    path_.push_back(*attribute);
    return;
  }
  const std::string& t = attribute->s->text;
  for (size_t from = 0;;) {
    const size_t dot = t.find('.', from);
    const size_t end = dot == std::string::npos ? t.size() : dot;
    const std::string_view part = std::string_view(t).substr(from, end - from);
    if (!part.empty() && part.size() < 18 &&
        part.find_first_not_of("0123456789") == std::string_view::npos)
      path_.push_back(Value::integer(std::stoll(std::string(part))));
    else
      path_.push_back(substring(in_.run, *attribute->s, from, end));
    if (dot == std::string::npos) break;
    from = dot + 1;
  }
}

Value Getter::operator()(const Value& v, const Value* otherwise) const {
  Value out = v;
  for (const Value& part : path_) {
    out = in_.item(out, part);
    if (otherwise && out.is(Kind::undefined)) out = *otherwise;
  }
  return out;
}

namespace {

Value folded(Interp& in, const Value& v, bool case_sensitive) {
  return v.is(Kind::string) && !case_sensitive ? change_case(in.run, v, Case::lower) : v;
}

Value hint(Run& run, const char* text) {
  return Value::undefined(Why::hint, run.string(std::string(text)).s);
}

void sort_values(Interp& in, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  Run& run = in.run;
  // Python's reverse sort keeps equal items in their order.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? order(run, b.first, a.first, "<") == -1 : order(run, a.first, b.first, "<") == -1;
  });
}

Value length_filter(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "length", args, {}, 0);
  return Value::integer(length(in.run, v));
}

Value default_filter(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "default", args, {"default_value", "boolean"}, 0);
  if (v.is(Kind::undefined) || (a.flag(1, false) && !truth(v)))
    return a[0] ? *a[0] : in.run.string("");
  return v;
}

Value first(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "first", args, {}, 0);
  Iter it(in.run, v);
  Value x;
  return it.next(x) ? x : hint(in.run, "No first item, sequence was empty.");
}

Value last(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  Bound(run, "last", args, {}, 0);
  if (v.is(Kind::generator)) run.error("'generator' object is not reversible");
  if (v.is_sequence() || v.is(Kind::string) || v.is(Kind::range)) {
    if (length(run, v) > 0) return in.item(v, Value::integer(-1));
    return hint(run, "No last item, sequence was empty.");
  }
  const std::vector<Value> all = to_vector(run, v);
  return all.empty() ? hint(run, "No last item, sequence was empty.") : all.back();
}

Value join_filter(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "join", args, {"d", "attribute"}, 0);
  const Getter get(in, a[1]);
  const Value sep = a[0] ? to_string(run, *a[0]) : run.string("");
  std::vector<Value> parts;
  Iter it(run, v);
  Value x;
  while (it.next(x)) parts.push_back(to_string(run, get(x)));
  return join(run, *sep.s, parts);
}

Value list_filter(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "list", args, {}, 0);
  return in.run.list(to_vector(in.run, v));
}

Value items(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  Bound(run, "items", args, {}, 0);
  if (v.is(Kind::undefined)) return run.generator([](Value&) { return false; });
  if (!v.is(Kind::dict)) run.error("Can only get item pairs from a mapping.");
  return run.generator([&run, v, at = size_t{0}](Value& out) mutable {
    const auto& all = v.as<Dict>().items;
    if (at >= all.size()) return false;
    out = run.list({all[at].first, all[at].second}, Kind::tuple);
    ++at;
    return true;
  });
}

Value map(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  if (!truth(v)) return run.generator([](Value&) { return false; });
  auto it = std::make_shared<Iter>(run, v);
  if (args.plain.empty() && !args.named.empty()) {
    const Bound a(run, "map", args, {"attribute", "default"}, 1);
    const bool has_default = a[1] && !a[1]->is(Kind::none);
    return run.generator([it, get = Getter(in, a[0]), has_default,
                          otherwise = a[1] ? *a[1] : Value()](Value& out) {
      Value x;
      if (!it->next(x)) return false;
      out = get(x, has_default ? &otherwise : nullptr);
      return true;
    });
  }
  if (args.plain.empty() || !args.plain[0].is(Kind::string)) run.error("map requires a filter argument");
  const std::string_view name = args.plain[0].text();
  const int id = filter_id(name);
  if (id < 0)
    fail(Status::unsupported, "chat template, line ", run.line, ": the filter '",
         name.substr(0, 60), "' is not supported");
  Args rest{{args.plain.begin() + 1, args.plain.end()}, args.named};
  return run.generator([&in, it, id, rest](Value& out) {
    Value x;
    if (!it->next(x)) return false;
    out = in.filter(id, x, rest);
    return true;
  });
}

Value choose(Interp& in, const Value& v, const Args& args, bool keep, bool by_attribute) {
  Run& run = in.run;
  if (!truth(v)) return run.generator([](Value&) { return false; });
  size_t at = by_attribute ? 1 : 0;
  if (args.plain.size() < at) run.error("Missing parameter for attribute name");
  const Getter get(in, by_attribute ? &args.plain[0] : nullptr);
  int id = -1;
  Args rest;
  if (args.plain.size() > at) {
    if (!args.plain[at].is(Kind::string)) run.error("the name of a test must be a string");
    const std::string_view name = args.plain[at].text();
    id = test_id(name);
    if (id < 0)
      fail(Status::unsupported, "chat template, line ", run.line, ": the test '",
           name.substr(0, 60), "' is not supported");
    ++at;
    rest.plain.assign(args.plain.begin() + static_cast<std::ptrdiff_t>(at), args.plain.end());
    rest.named = args.named;
  }
  auto it = std::make_shared<Iter>(run, v);
  return run.generator([&in, it, get, id, rest, keep](Value& out) {
    while (it->next(out)) {
      const Value x = get(out);
      if ((id < 0 ? truth(x) : in.test(id, x, rest)) == keep) return true;
    }
    return false;
  });
}
Value select(Interp& in, const Value& v, const Args& a) { return choose(in, v, a, true, false); }
Value reject(Interp& in, const Value& v, const Args& a) { return choose(in, v, a, false, false); }
Value selectattr(Interp& in, const Value& v, const Args& a) { return choose(in, v, a, true, true); }
Value rejectattr(Interp& in, const Value& v, const Args& a) { return choose(in, v, a, false, true); }

Value unique(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "unique", args, {"case_sensitive", "attribute"}, 0);
  auto it = std::make_shared<Iter>(run, v);
  auto seen = std::make_shared<std::set<std::string>>();
  return run.generator([&in, &run, it, seen, get = Getter(in, a[1]),
                        sensitive = a.flag(0, false)](Value& out) {
    while (it->next(out)) {
      std::string key = key_of(run, folded(in, get(out), sensitive));
      run.charge(key.size() + 64);
      if (seen->insert(std::move(key)).second) return true;
    }
    return false;
  });
}

Value sort(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "sort", args, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Getter> getters;
  if (a[2] && a[2]->is(Kind::string)) {
    const Value parts = split(run, *a[2], &*run.string(",").s, -1, false);
    for (const Value& p : parts.as<List>().items) getters.emplace_back(in, &p);
  } else {
    getters.emplace_back(in, a[2]);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& x : to_vector(run, v)) {
    std::vector<Value> key;
    for (const Getter& get : getters) key.push_back(folded(in, get(x), a.flag(1, false)));
    keyed.emplace_back(run.list(std::move(key)), std::move(x));
  }
  sort_values(in, keyed, a.flag(0, false));
  std::vector<Value> out;
  for (auto& [k, x] : keyed) out.push_back(std::move(x));
  return run.list(std::move(out));
}

Value dictsort(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "dictsort", args, {"case_sensitive", "by", "reverse"}, 0);
  const Str* by = a.text(1);
  if (by && by->text != "key" && by->text != "value")
    run.error("You can only sort by either \"key\" or \"value\"");
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (!v.is(Kind::dict)) run.error("'", type_name(v), "' object has no attribute 'items'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [k, x] : v.as<Dict>().items) {
    run.step();
    keyed.emplace_back(folded(in, by && by->text == "value" ? x : k, a.flag(0, false)),
                       run.list({k, x}, Kind::tuple));
  }
  sort_values(in, keyed, a.flag(2, false));
  std::vector<Value> out;
  for (auto& [k, x] : keyed) out.push_back(std::move(x));
  return run.list(std::move(out));
}

Value reverse(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  Bound(run, "reverse", args, {}, 0);
  if (v.is(Kind::string)) return reverse_string(run, v);
  std::vector<Value> all = to_vector(run, v);
  std::reverse(all.begin(), all.end());
  // Of a generator the reference makes a list, of anything else an iterator.
  if (v.is(Kind::generator)) return run.list(std::move(all));
  const Value held = run.list(std::move(all));
  auto it = std::make_shared<Iter>(run, held);
  return run.generator([it](Value& out) { return it->next(out); });
}

Value extreme(Interp& in, const char* who, const Value& v, const Args& args, int sign) {
  Run& run = in.run;
  const Bound a(run, who, args, {"case_sensitive", "attribute"}, 0);
  const Getter get(in, a[1]);
  Iter it(run, v);
  Value best, best_key, x;
  if (!it.next(best)) return hint(run, "No aggregated item, sequence was empty.");
  best_key = folded(in, get(best), a.flag(0, false));
  while (it.next(x)) {
    Value key = folded(in, get(x), a.flag(0, false));
    if (order(run, key, best_key, sign < 0 ? "<" : ">") != sign) continue;
    best = x;
    best_key = key;
  }
  return best;
}
Value min(Interp& in, const Value& v, const Args& a) { return extreme(in, "min", v, a, -1); }
Value max(Interp& in, const Value& v, const Args& a) { return extreme(in, "max", v, a, 1); }

Value sum(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "sum", args, {"attribute", "start"}, 0);
  const Getter get(in, a[0]);
  Value total = a[1] ? *a[1] : Value::integer(0);
  if (total.is(Kind::string)) in.run.error("sum() can't sum strings");
  Iter it(in.run, v);
  Value x;
  while (it.next(x)) total = in.binary(Op::add, total, get(x));
  return total;
}

Value batch(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = a.integer(0, 1);
  auto it = std::make_shared<Iter>(run, v);
  return run.generator([&run, it, n, fill = a[1] ? *a[1] : Value::none(),
                        pending = std::optional<Value>(), done = false](Value& out) mutable {
    std::vector<Value> row;
    Value x;
    if (pending) row.push_back(std::move(*pending));
    pending.reset();
    while (!done) {
      if (!it->next(x)) {
        done = true;
        break;
      }
      if (static_cast<int64_t>(row.size()) == n) {
        pending = x;
        out = run.list(std::move(row));
        return true;
      }
      row.push_back(x);
    }
    if (row.empty()) return false;
    while (!fill.is(Kind::none) && static_cast<int64_t>(row.size()) < n) {
      run.step();
      run.charge(sizeof(Value));
      row.push_back(fill);
    }
    out = run.list(std::move(row));
    return true;
  });
}

Value groupby(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Getter get(in, a[0]);
  const bool sensitive = a.flag(2, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& x : to_vector(run, v)) {
    Value key = folded(in, get(x, a[1]), sensitive);
    keyed.emplace_back(std::move(key), std::move(x));
  }
  sort_values(in, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    size_t k = i;
    for (; k < keyed.size() && equal(run, keyed[k].first, keyed[i].first); ++k)
      members.push_back(keyed[k].second);
    // The name of a group is that of its first member, in its own spelling.
    groups.push_back(
        run.list({get(keyed[i].second, a[1]), run.list(std::move(members))}, Kind::tuple));
    i = std::max(k, i + 1);
  }
  return run.list(std::move(groups));
}

Value attr(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "attr", args, {"name"}, 1);
  const Value name = to_string(in.run, *a[0]);
  // Attributes only: keys of mappings are none.
  if (v.is(Kind::dict)) {
    const int id = method_id(name.text());
    if (id < 0 || has_method(v.kind, id) == Has::no)
      return Value::undefined(Why::attribute, name.s, v.kind);
  }
  return in.attribute(v, name.s, method_id(name.text()));
}

}  // namespace

const FilterEntry sequence_filters[] = {
    {"length", length_filter}, {"count", length_filter}, {"default", default_filter},
    {"d", default_filter},     {"first", first},         {"last", last},
    {"join", join_filter},     {"list", list_filter},    {"items", items},
    {"map", map},              {"select", select},       {"reject", reject},
    {"selectattr", selectattr}, {"rejectattr", rejectattr}, {"unique", unique},
    {"sort", sort},            {"dictsort", dictsort},   {"reverse", reverse},
    {"min", min},              {"max", max},             {"sum", sum},
    {"batch", batch},          {"groupby", groupby},     {"attr", attr},
    {nullptr, nullptr},
};

}  // namespace orlop::tmpl
