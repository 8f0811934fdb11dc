// The methods of str, dict, list, tuple and the helpers, and the global functions.
#include <algorithm>
#include <iterator>

#include "text/template_interp.h"
#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

enum class M : int {
  capitalize, casefold, center, count, endswith, find, index, isalnum, isalpha, isascii, isdecimal,
  isdigit, islower, isnumeric, isprintable, isspace, isupper, join, ljust, lower, lstrip, partition,
  removeprefix, removesuffix, replace, rfind, rindex, rjust, rpartition, rsplit, rstrip, split,
  splitlines, startswith, strip, swapcase, title, upper, zfill,
  items, keys, values, get, copy,
  append, clear, extend, insert, pop, popitem, remove, reverse, setdefault, sort, update,
  next, reset, cycle, changed,
};
constexpr const char* names[] = {
    "capitalize", "casefold", "center", "count", "endswith", "find", "index", "isalnum", "isalpha",
    "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isprintable", "isspace", "isupper",
    "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace",
    "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "swapcase", "title", "upper", "zfill",
    "items", "keys", "values", "get", "copy",
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault",
    "sort", "update",
    "next", "reset", "cycle", "changed",
};
static_assert(std::size(names) == static_cast<size_t>(M::changed) + 1);

// start and end of s.find(x, start, end) and its like, as byte positions; false: empty range.
bool window(Run& run, const std::string& t, const Bound& a, size_t first, size_t& begin,
            size_t& end) {
  begin = 0;
  end = t.size();
  if (!a[first] && !a[first + 1]) return true;
  const int64_t n = static_cast<int64_t>(count_chars(t));
  run.work(t.size());
  const auto at = [&](size_t i, int64_t otherwise) {
    if (!a[i] || a[i]->is(Kind::none)) return otherwise;
    const int64_t v = a.integer(i, 0);
    return v < 0 ? std::max<int64_t>(0, v + n) : v;
  };
  const int64_t from = at(first, 0), to = std::min(at(first + 1, n), n);
  if (from > to) return false;
  begin = byte_of_char(t, static_cast<size_t>(from));
  end = byte_of_char(t, static_cast<size_t>(to));
  return true;
}

Value pad(Run& run, const Value& v, int64_t width, const Str* fill, int side) {
  const int64_t n = length(run, v);
  const std::string space = " ";
  if (fill && count_chars(fill->text) != 1)
    run.error("the fill character must be exactly one character long");
  const int64_t extra = width - n;
  if (extra <= 0) return v;
  // As Python: an odd rest goes left when the width is odd.
  const int64_t left = side < 0 ? extra : side > 0 ? 0 : extra / 2 + (extra & width & 1);
  const Value unit = fill ? substring(run, *fill, 0, fill->text.size()) : run.string(" ");
  Builder out(run);
  out.add(*repeat(run, unit, left).s);
  out.add(*v.s);
  out.add(*repeat(run, unit, extra - left).s);
  return out.finish();
}

bool starts_or_ends(Run& run, const Value& v, const Args& args, bool at_end) {
  const Bound a(run, at_end ? "endswith" : "startswith", args, {"what", "start", "end"}, 1);
  size_t begin, end;
  const std::string& t = v.s->text;
  if (!window(run, t, a, 1, begin, end)) return false;
  const std::string_view part = std::string_view(t).substr(begin, end - begin);
  const auto one = [&](const Value& x) {
    if (!x.is(Kind::string))
      run.error("startswith and endswith take a str or a tuple of str, not ", type_name(x));
    run.work(x.s->text.size());
    return at_end ? part.ends_with(x.text()) : part.starts_with(x.text());
  };
  if (!a[0]->is(Kind::tuple)) return one(*a[0]);
  for (const Value& x : a[0]->as<List>().items)
    if (one(x)) return true;
  return false;
}

const Str& text_of(Run& run, const char* who, const Value& v) {
  if (!v.is(Kind::string)) run.error(who, ": must be str, not ", type_name(v));
  return *v.s;
}

Value string_method(Run& run, const Value& v, M m, const Args& args) {
  const char* who = names[static_cast<int>(m)];
  const std::string& t = v.s->text;
  const auto none = [&] { Bound(run, who, args, {}, 0); };
  const auto cased = [&](Case how) {
    none();
    return change_case(run, v, how);
  };
  const auto is = [&](CharTest test) {
    none();
    return Value::boolean(all_chars(run, t, test));
  };
  switch (m) {
    case M::capitalize: return cased(Case::capitalize);
    case M::casefold: return cased(Case::casefold);
    case M::lower: return cased(Case::lower);
    case M::upper: return cased(Case::upper);
    case M::title: return cased(Case::title);
    case M::swapcase: return cased(Case::swap);
    case M::isalnum: return is(CharTest::alnum);
    case M::isalpha: return is(CharTest::alpha);
    case M::isascii: return is(CharTest::ascii);
    case M::isdecimal: return is(CharTest::decimal);
    case M::isdigit: return is(CharTest::digit);
    case M::islower: return is(CharTest::lower);
    case M::isnumeric: return is(CharTest::numeric);
    case M::isprintable: return is(CharTest::printable);
    case M::isspace: return is(CharTest::space);
    case M::isupper: return is(CharTest::upper);
    case M::startswith: return Value::boolean(starts_or_ends(run, v, args, false));
    case M::endswith: return Value::boolean(starts_or_ends(run, v, args, true));
    case M::strip:
    case M::lstrip:
    case M::rstrip: {
      const Bound a(run, who, args, {"chars"}, 0);
      return strip(run, v, a.text(0),
                   m == M::strip ? Side::both : m == M::lstrip ? Side::left : Side::right);
    }
    case M::split:
    case M::rsplit: {
      const Bound a(run, who, args, {"sep", "maxsplit"}, 0);
      return split(run, v, a.text(0), a.integer(1, -1), m == M::rsplit);
    }
    case M::splitlines: {
      const Bound a(run, who, args, {"keepends"}, 0);
      return split_lines(run, v, a.flag(0, false));
    }
    case M::replace: {
      const Bound a(run, who, args, {"old", "new", "count"}, 2);
      return replace(run, v, text_of(run, who, *a[0]), text_of(run, who, *a[1]), a.integer(2, -1));
    }
    case M::join: {
      const Bound a(run, who, args, {"iterable"}, 1);
      std::vector<Value> parts = to_vector(run, *a[0]);
      for (const Value& p : parts) text_of(run, who, p);
      return join(run, *v.s, parts);
    }
    case M::partition:
    case M::rpartition: {
      const Bound a(run, who, args, {"sep"}, 1);
      return partition(run, v, text_of(run, who, *a[0]), m == M::rpartition);
    }
    case M::removeprefix: {
      const Bound a(run, who, args, {"prefix"}, 1);
      const std::string& p = text_of(run, who, *a[0]).text;
      return t.starts_with(p) ? substring(run, *v.s, p.size(), t.size()) : v;
    }
    case M::removesuffix: {
      const Bound a(run, who, args, {"suffix"}, 1);
      const std::string& p = text_of(run, who, *a[0]).text;
      return t.ends_with(p) ? substring(run, *v.s, 0, t.size() - p.size()) : v;
    }
    case M::count:
    case M::find:
    case M::rfind:
    case M::index:
    case M::rindex: {
      const Bound a(run, who, args, {"sub", "start", "end"}, 1);
      const std::string& sub = text_of(run, who, *a[0]).text;
      size_t begin = 0, end = 0;
      const bool any = window(run, t, a, 1, begin, end);
      const std::string_view part = std::string_view(t).substr(begin, any ? end - begin : 0);
      run.work(part.size());
      if (m == M::count) {
        if (!any) return Value::integer(0);
        if (sub.empty()) return Value::integer(static_cast<Int>(count_chars(part)) + 1);
        Int n = 0;
        for (size_t at = 0; (at = find_bytes(part, sub, at)) != std::string::npos; at += sub.size()) {
          run.step();
          ++n;
        }
        return Value::integer(n);
      }
      const bool back = m == M::rfind || m == M::rindex;
      const size_t hit = !any ? std::string::npos : back ? rfind_bytes(part, sub) : find_bytes(part, sub, 0);
      if (hit != std::string::npos)
        return Value::integer(
            static_cast<Int>(count_chars(std::string_view(t).substr(0, begin + hit))));
      if (m == M::index || m == M::rindex) run.error("substring not found");
      return Value::integer(-1);
    }
    case M::center:
    case M::ljust:
    case M::rjust: {
      const Bound a(run, who, args, {"width", "fillchar"}, 1);
      return pad(run, v, a.integer(0, 0), a.text(1), m == M::center ? 0 : m == M::ljust ? 1 : -1);
    }
    case M::zfill: {
      const Bound a(run, who, args, {"width"}, 1);
      const int64_t extra = a.integer(0, 0) - length(run, v);
      if (extra <= 0) return v;
      const size_t sign = !t.empty() && (t[0] == '+' || t[0] == '-');
      Builder out(run);
      out.add(*v.s, 0, sign);
      out.add(*repeat(run, run.string("0"), extra).s);
      out.add(*v.s, sign, t.size());
      return out.finish();
    }
    default: run.error("'str' object has no method '", who, "'");
  }
}

Value view(Run& run, const Value& v, View::What what) {
  View* out = run.make<View>();
  out->what = what;
  out->dict = &v.as<Dict>();
  return Value::object(Kind::view, out);
}

}  // namespace

int method_id(std::string_view name) {
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i]) return static_cast<int>(i);
  return -1;
}

const char* method_name(int id) { return names[id]; }

bool missing_method(std::string_view name) {
  for (const char* n : {"encode", "expandtabs", "format", "format_map", "isidentifier", "istitle",
                        "maketrans", "translate", "fromkeys", "bit_length", "is_integer"})
    if (name == n) return true;
  return false;
}

Has has_method(Kind kind, int id) {
  const M m = static_cast<M>(id);
  switch (kind) {
    case Kind::string: return m <= M::zfill ? Has::yes : Has::no;
    case Kind::dict:
      if (m >= M::items && m <= M::copy) return Has::yes;
      return m == M::clear || m == M::pop || m == M::popitem || m == M::setdefault || m == M::update
                 ? Has::unsafe
                 : Has::no;
    case Kind::list:
      if (m == M::count || m == M::index || m == M::copy) return Has::yes;
      return m == M::append || m == M::clear || m == M::extend || m == M::insert || m == M::pop ||
                     m == M::remove || m == M::reverse || m == M::sort
                 ? Has::unsafe
                 : Has::no;
    case Kind::tuple:
    case Kind::range: return m == M::count || m == M::index ? Has::yes : Has::no;
    case Kind::cycler: return m == M::next || m == M::reset ? Has::yes : Has::no;
    case Kind::loop: return m == M::cycle || m == M::changed ? Has::yes : Has::no;
    default: return Has::no;
  }
}

Value Interp::method(const Value& v, int id, const Args& args) {
  const M m = static_cast<M>(id);
  const char* who = names[id];
  if (v.markup)
    fail(Status::unsupported, "chat template, line ", run.line,
         ": a method of the result of |safe or |escape is not supported");
  switch (v.kind) {
    case Kind::string: return string_method(run, v, m, args);
    case Kind::dict:
      switch (m) {
        case M::items: Bound(run, who, args, {}, 0); return view(run, v, View::What::items);
        case M::keys: Bound(run, who, args, {}, 0); return view(run, v, View::What::keys);
        case M::values: Bound(run, who, args, {}, 0); return view(run, v, View::What::values);
        case M::copy: Bound(run, who, args, {}, 0); return v;  // never modified
        default: {
          const Bound a(run, who, args, {"key", "default"}, 1);
          if (const Value* found = v.as<Dict>().find(run, *a[0])) return *found;
          return a[1] ? *a[1] : Value::none();
        }
      }
    case Kind::list:
    case Kind::tuple:
    case Kind::range: {
      if (m == M::copy) return v;
      const Bound a(run, who, args, {"value", "start", "stop"}, 1);
      if (m == M::count) {
        Int n = 0;
        Iter it(run, v);
        Value x;
        while (it.next(x)) n += equal(run, x, *a[0]);
        return Value::integer(n);
      }
      const int64_t n = length(run, v);
      const auto at = [&](int64_t i) { return i < 0 ? std::max<int64_t>(0, i + n) : i; };
      const int64_t from = at(a.integer(1, 0)), to = at(a.integer(2, n));
      Iter it(run, v);
      Value x;
      for (int64_t i = 0; it.next(x); ++i)
        if (i >= from && i < to && equal(run, x, *a[0])) return Value::integer(i);
      run.error("the value is not in the ", type_name(v));
    }
    case Kind::cycler: {
      Cycler& c = v.as<Cycler>();
      const Value now = c.items[c.at];
      c.at = m == M::reset ? 0 : (c.at + 1) % c.items.size();
      return m == M::reset ? Value::none() : now;
    }
    case Kind::loop: {
      LoopState& l = v.as<LoopState>();
      if (!args.named.empty()) run.error("loop.", who, " takes no keyword arguments");
      if (m == M::cycle) {
        if (args.plain.empty()) run.error("no items for cycling given");
        return args.plain[static_cast<size_t>(l.index0) % args.plain.size()];
      }
      bool same = l.changed_before && l.last_changed.size() == args.plain.size();
      for (size_t i = 0; same && i < args.plain.size(); ++i)
        same = equal(run, l.last_changed[i], args.plain[i]);
      l.last_changed = args.plain;
      l.changed_before = true;
      return Value::boolean(!same);
    }
    default: run.error("'", type_name(v), "' object has no method '", who, "'");
  }
}

std::optional<Func> function_named(std::string_view name) {
  if (name == "range") return Func::range;
  if (name == "dict") return Func::dict;
  if (name == "namespace") return Func::space;
  if (name == "cycler") return Func::cycler;
  if (name == "joiner") return Func::joiner;
  if (name == "raise_exception") return Func::raise;
  if (name == "strftime_now") return Func::now;
  return {};
}

Value Interp::call(const Value& f, Args args) {
  Deeper deeper(run);
  switch (f.kind) {
    case Kind::undefined: raise_undefined(run, f);
    case Kind::macro: return call_macro(f.as<Macro>(), args);
    case Kind::method: return method(f.as<Method>().self, f.as<Method>().id, args);
    case Kind::function: return call_function(static_cast<int>(f.i), args);
    case Kind::joiner: {
      Joiner& j = f.as<Joiner>();
      if (j.used) return j.separator;
      j.used = true;
      return run.string("");
    }
    default: run.error("'", type_name(f), "' object is not callable");
  }
}

Value Interp::call_function(int id, const Args& args) {
  switch (static_cast<Func>(id)) {
    case Func::range: {
      const Bound a(run, "range", args, {"start", "stop", "step"}, 1);
      Range* r = run.make<Range>();
      if (!a[1]) {
        r->stop = a.integer(0, 0);
      } else {
        r->start = a.integer(0, 0);
        r->stop = a.integer(1, 0);
        r->step = a.integer(2, 1);
      }
      constexpr int64_t far = int64_t{1} << 60;
      if (r->step == 0) run.error("range() arg 3 must not be zero");
      if (std::max({std::abs(r->start), std::abs(r->stop), std::abs(r->step)}) > far ||
          r->size() > 100'000)
        run.error("range of more than 100000 items");
      return Value::object(Kind::range, r);
    }
    case Func::dict:
    case Func::space: {
      const bool space = static_cast<Func>(id) == Func::space;
      if (args.plain.size() > 1) run.error("dict expected at most 1 argument");
      Dict* d = run.make<Dict>();
      if (!args.plain.empty()) {
        const Value& from = args.plain[0];
        if (from.is(Kind::dict)) {
          for (const auto& [k, v] : from.as<Dict>().items) d->set(run, k, v);
        } else {
          Iter it(run, from);
          Value pair;
          while (it.next(pair)) {
            const std::vector<Value> two = to_vector(run, pair);
            if (two.size() != 2) run.error("dict: an element is no pair");
            d->set(run, two[0], two[1]);
          }
        }
      }
      for (const auto& [name, v] : args.named) d->set(run, run.string(name), v);
      return Value::object(space ? Kind::space : Kind::dict, d);
    }
    case Func::cycler: {
      if (args.plain.empty() || !args.named.empty()) run.error("cycler: at least one item has to be provided");
      Cycler* c = run.make<Cycler>();
      run.charge(args.plain.size() * sizeof(Value));
      c->items = args.plain;
      return Value::object(Kind::cycler, c);
    }
    case Func::joiner: {
      const Bound a(run, "joiner", args, {"sep"}, 0);
      Joiner* j = run.make<Joiner>();
      j->separator = a[0] ? *a[0] : run.string(", ");
      return Value::object(Kind::joiner, j);
    }
    case Func::raise: {
      const Bound a(run, "raise_exception", args, {"message"}, 1);
      const Value text = to_string(run, *a[0]);
      fail(Status::invalid_argument, "chat template: ", text.text().substr(0, 2000));
    }
    case Func::now: {
      const Bound a(run, "strftime_now", args, {"format"}, 1);
      return format_time(run, *a[0], now_);
    }
  }
  run.error("not a function");
}

}  // namespace orlop::tmpl
