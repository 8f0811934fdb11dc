#include <algorithm>

#include "text/template_interp.h"
#include "text/template_string.h"

namespace orlop::tmpl {

Value Interp::eval(const Expr& e, Scope& scope) {
  Deeper deeper(run);
  run.step();
  switch (e.kind) {
    case Ex::constant: return e.value;
    case Ex::name: return lookup(e.name, scope);
    case Ex::tuple:
    case Ex::list: {
      std::vector<Value> items;
      items.reserve(e.kids.size());
      for (const ExprPtr& k : e.kids) items.push_back(eval(*k, scope));
      return run.list(std::move(items), e.kind == Ex::tuple ? Kind::tuple : Kind::list);
    }
    case Ex::dict: {
      Dict* d = run.make<Dict>();
      for (size_t i = 0; i < e.kids.size(); i += 2) {
        const Value key = eval(*e.kids[i], scope);
        d->set(run, key, eval(*e.kids[i + 1], scope));
      }
      return run.dict(d);
    }
    case Ex::logic_and:
    case Ex::logic_or: {
      Value v;
      for (const ExprPtr& k : e.kids) {
        v = eval(*k, scope);
        if (truth(v) == (e.kind == Ex::logic_or)) break;
      }
      return v;
    }
    case Ex::logic_not: return Value::boolean(!truth(eval(*e.kids[0], scope)));
    case Ex::compare: {
      Value left = eval(*e.kids[0], scope);
      for (size_t i = 0; i < e.ops.size(); ++i) {
        Value right = eval(*e.kids[i + 1], scope);
        if (!compare(e.ops[i], left, right)) return Value::boolean(false);
        left = std::move(right);
      }
      return Value::boolean(true);
    }
    case Ex::arith: {
      Value v = eval(*e.kids[0], scope);
      for (size_t i = 0; i < e.ops.size(); ++i) {
        const Value right = eval(*e.kids[i + 1], scope);
        run.line = e.line;
        v = binary(e.ops[i], v, right);
      }
      return v;
    }
    case Ex::concat: {
      std::vector<Value> parts;
      for (const ExprPtr& k : e.kids) parts.push_back(eval(*k, scope));
      Builder out(run);
      for (const Value& p : parts) write_str(run, out, p);
      return out.finish();
    }
    case Ex::negate:
    case Ex::plus: {
      const Value v = eval(*e.kids[0], scope);
      const bool minus = e.kind == Ex::negate;
      if (v.is(Kind::undefined)) raise_undefined(run, v);
      if (v.is(Kind::real)) return Value::real(minus ? -v.d : v.d);
      if (!v.is_int())
        run.error("bad operand type for unary ", minus ? "-" : "+", ": '", type_name(v), "'");
      return minus ? binary(Op::sub, Value::integer(0), v) : Value::integer(v.as_int());
    }
    case Ex::conditional:
      if (truth(eval(*e.kids[0], scope))) return eval(*e.kids[1], scope);
      if (e.kids.size() > 2) return eval(*e.kids[2], scope);
      return Value::undefined(
          Why::hint,
          run.string("the inline if-expression evaluated to false and no else section was defined.").s);
    case Ex::chain: return chain(e, scope, nullptr);
    case Ex::slice: break;
  }
  run.error("a slice outside of a subscription");
}

Args Interp::arguments(const Arguments& a, Scope& scope) {
  Args out;
  for (const ExprPtr& e : a.plain) out.plain.push_back(eval(*e, scope));
  for (const auto& [name, e] : a.named) out.named.emplace_back(name, eval(*e, scope));
  if (a.star)
    for (Value& v : to_vector(run, eval(*a.star, scope))) out.plain.push_back(std::move(v));
  if (a.double_star) {
    const Value v = eval(*a.double_star, scope);
    if (!v.is(Kind::dict)) run.error("argument after ** must be a mapping, not ", type_name(v));
    for (const auto& [k, item] : v.as<Dict>().items) {
      if (!k.is(Kind::string)) run.error("keywords must be strings");
      for (const auto& [name, other] : out.named)
        if (name == k.text()) run.error("got multiple values for keyword argument '", name, "'");
      run.step(out.named.size());
      out.named.emplace_back(k.s->text, item);
    }
  }
  return out;
}

Value Interp::chain(const Expr& e, Scope& scope, const Value* base) {
  Value v = base ? *base : eval(*e.kids[0], scope);
  for (size_t i = 0; i < e.links.size(); ++i) {
    const Link& link = e.links[i];
    run.step();
    run.line = link.line;
    switch (link.what) {
      case Link::What::attribute:
        if (link.id >= 0 && i + 1 < e.links.size() && e.links[i + 1].what == Link::What::call &&
            has_method(v.kind, link.id) == Has::yes) {
          const Args args = arguments(e.links[++i].args, scope);
          run.line = link.line;
          v = method(v, link.id, args);
        } else {
          v = attribute(v, link.text, link.id);
        }
        break;
      case Link::What::item:
        if (link.index->kind == Ex::slice) {
          Value part[3];
          const Value* given[3] = {};
          for (size_t k = 0; k < 3; ++k)
            if (link.index->kids[k]) {
              part[k] = eval(*link.index->kids[k], scope);
              given[k] = &part[k];
            }
          v = slice(v, given[0], given[1], given[2]);
        } else {
          v = item(v, eval(*link.index, scope));
        }
        break;
      case Link::What::call: v = call(v, arguments(link.args, scope)); break;
      case Link::What::filter: {
        const Args args = arguments(link.args, scope);
        run.line = link.line;
        v = filter(link.id, v, args);
        break;
      }
      case Link::What::test: {
        const Args args = arguments(link.args, scope);
        run.line = link.line;
        v = Value::boolean(test(link.id, v, args) != link.negated);
        break;
      }
    }
  }
  return v;
}

bool Interp::compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::eq: return equal(run, a, b);
    case Op::ne: return !equal(run, a, b);
    case Op::lt: return order(run, a, b, "<") == -1;
    case Op::gt: return order(run, a, b, ">") == 1;
    case Op::le: {
      const int c = order(run, a, b, "<=");
      return c == -1 || c == 0;
    }
    case Op::ge: {
      const int c = order(run, a, b, ">=");
      return c == 1 || c == 0;
    }
    case Op::in: return contains(run, a, b);
    case Op::not_in: return !contains(run, a, b);
    default: run.error("not a comparison");
  }
}

Value Interp::binary(Op op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) raise_undefined(run, a);
  if (b.is(Kind::undefined)) raise_undefined(run, b);
  if (a.markup || b.markup)
    fail(Status::unsupported, "chat template, line ", run.line,
         ": arithmetic on the result of |safe or |escape is not supported");
  if (op == Op::add) {
    if (a.is(Kind::string) && b.is(Kind::string)) {
      Builder out(run);
      out.add(*a.s);
      out.add(*b.s);
      return out.finish();
    }
    if (a.is_sequence() && a.kind == b.kind) {
      const auto &x = a.as<List>().items, &y = b.as<List>().items;
      run.step((x.size() + y.size()) >> 3);
      std::vector<Value> all = x;
      all.insert(all.end(), y.begin(), y.end());
      return run.list(std::move(all), a.kind);
    }
  }
  if (op == Op::mul) {
    const Value& s = a.is_int() ? b : a;
    const Value& n = a.is_int() ? a : b;
    if (n.is_int() && s.is(Kind::string)) return repeat(run, s, n.as_int());
    if (n.is_int() && s.is_sequence()) {
      const auto& items = s.as<List>().items;
      const Int times = n.as_int() > 0 && !items.empty() ? n.as_int() : 0;
      if (times > static_cast<Int>(run.max_live / sizeof(Value) / std::max<size_t>(1, items.size())))
        run.error("a repeated list would be too long (max_output)");
      run.step(static_cast<uint64_t>(times) * items.size());
      std::vector<Value> all;
      for (Int i = 0; i < times; ++i) all.insert(all.end(), items.begin(), items.end());
      return run.list(std::move(all), s.kind);
    }
  }
  return arithmetic(run, op, a, b);
}

Value Interp::slice(const Value& v, const Value* start, const Value* stop, const Value* step) {
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (!v.is_sequence() && !v.is(Kind::string) && !v.is(Kind::range))
    run.error("'", type_name(v), "' object is not subscriptable by a slice");
  const auto number = [&](const Value* x, int64_t otherwise) {
    if (!x || x->is(Kind::none)) return otherwise;
    if (!x->is_int()) run.error("slice indices must be integers or None");
    constexpr Int big = Int{1} << 62;
    return static_cast<int64_t>(std::clamp(x->as_int(), -big, big));
  };
  const int64_t n = length(run, v);
  const int64_t by = number(step, 1);
  if (by == 0) run.error("slice step cannot be zero");
  const auto clip = [&](int64_t i) {
    if (i < 0) return std::max<int64_t>(i + n, by < 0 ? -1 : 0);
    return std::min(i, by < 0 ? n - 1 : n);
  };
  const bool has_start = start && !start->is(Kind::none), has_stop = stop && !stop->is(Kind::none);
  const int64_t from = has_start ? clip(number(start, 0)) : by < 0 ? n - 1 : 0;
  const int64_t to = has_stop ? clip(number(stop, 0)) : by < 0 ? -1 : n;
  const int64_t count = by > 0 ? (from < to ? (to - from - 1) / by + 1 : 0)
                               : (from > to ? (from - to - 1) / -by + 1 : 0);
  if (v.is(Kind::string)) return slice_string(run, v, from, by, count);
  if (v.is(Kind::range)) {
    const Range& r = v.as<Range>();
    Range* out = run.make<Range>();
    out->start = r.start + from * r.step;
    out->stop = r.start + to * r.step;
    // A step too far for 64 bits leads past the range's end anyway.
    if (__builtin_mul_overflow(r.step, by, &out->step)) out->step = by < 0 ? -r.step : r.step;
    return Value::object(Kind::range, out);
  }
  const auto& items = v.as<List>().items;
  std::vector<Value> out;
  run.step(static_cast<uint64_t>(count));
  for (int64_t i = 0; i < count; ++i) out.push_back(items[static_cast<size_t>(from + i * by)]);
  return run.list(std::move(out), v.kind);
}

Value Interp::item(const Value& v, const Value& key) {
  switch (v.kind) {
    case Kind::undefined: raise_undefined(run, v);
    case Kind::dict:
      if (!key.is(Kind::list) && !key.is(Kind::dict) && !key.is(Kind::view))
        if (const Value* found = v.as<Dict>().find(run, key)) return *found;
      break;
    case Kind::list:
    case Kind::tuple:
    case Kind::string:
    case Kind::range:
      if (key.is_int()) {
        const int64_t n = length(run, v);
        Int i = key.as_int();
        if (i < 0) i += n;
        if (i < 0 || i >= n) break;
        const int64_t at = static_cast<int64_t>(i);
        if (v.is(Kind::string)) return slice_string(run, v, at, 1, 1);
        if (v.is(Kind::range)) {
          const Range& r = v.as<Range>();
          return Value::integer(Int{r.start} + Int{at} * r.step);
        }
        return v.as<List>().items[static_cast<size_t>(at)];
      }
      break;
    default: break;
  }
  if (!key.is(Kind::string)) {
    Builder name(run);
    name.trusted("element ");
    if (key.is_number()) write_repr(run, name, key);
    return Value::undefined(Why::attribute, name.finish().s, v.kind);
  }
  // A name that is no key may still be an attribute.
  if (v.is(Kind::dict)) {
    const int id = method_id(key.text());
    if (id < 0 || has_method(v.kind, id) == Has::no)
      return Value::undefined(Why::attribute, key.s, v.kind);
  }
  return attribute(v, key.s, method_id(key.text()));
}

Value Interp::attribute(const Value& v, const StrPtr& name, int id) {
  const std::string_view text = name->text;
  const bool dunder = text.substr(0, 2) == "__";
  if (v.is(Kind::undefined) && (!dunder || v.why == Why::unsafe)) raise_undefined(run, v);
  if (dunder) return Value::undefined(Why::unsafe, name, v.kind);
  if (id >= 0) {
    const Has has = has_method(v.kind, id);
    if (has == Has::unsafe) return Value::undefined(Why::unsafe, name, v.kind);
    if (has == Has::yes) {
      Method* m = run.make<Method>();
      m->self = v;
      m->id = id;
      return Value::object(Kind::method, m);
    }
  }
  if (v.is(Kind::string) && missing_method(text))
    fail(Status::unsupported, "chat template, line ", run.line, ": the method '", text,
         "' is not supported");
  switch (v.kind) {
    case Kind::dict:
    case Kind::space:
      if (const Value* found = v.as<Dict>().find(text)) return *found;
      break;
    case Kind::loop: return loop_attribute(v.as<LoopState>(), text, v);
    case Kind::cycler:
      if (text == "current") return v.as<Cycler>().items[v.as<Cycler>().at];
      break;
    case Kind::macro:
      if (text == "name") return Value::string(v.as<Macro>().def->text);
      break;
    default: break;
  }
  return Value::undefined(Why::attribute, name, v.kind);
}

Value Interp::loop_attribute(LoopState& l, std::string_view name, const Value& v) {
  const auto size = [&] {
    if (l.known_length < 0) {
      if (l.sized) {
        l.known_length = length(run, l.source);
      } else {
        auto rest = std::make_shared<std::vector<Value>>();
        Value x;
        while (!l.ended && l.pull(x)) rest->push_back(x);
        l.known_length = static_cast<int64_t>(rest->size()) + l.index0 + 1 + (l.ahead ? 1 : 0);
        run.charge(rest->size() * sizeof(Value));
        l.pull = [rest, at = size_t{0}](Value& out) mutable {
          if (at >= rest->size()) return false;
          out = (*rest)[at++];
          return true;
        };
      }
    }
    return l.known_length;
  };
  if (name == "index") return Value::integer(l.index0 + 1);
  if (name == "index0") return Value::integer(l.index0);
  if (name == "first") return Value::boolean(l.index0 == 0);
  if (name == "last") return Value::boolean(!l.peek());
  if (name == "length") return Value::integer(size());
  if (name == "revindex") return Value::integer(size() - l.index0);
  if (name == "revindex0") return Value::integer(size() - l.index0 - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return l.index0 == 0
               ? Value::undefined(Why::hint, run.string("there is no previous item").s)
               : l.before;
  if (name == "nextitem")
    return l.peek() ? *l.ahead
                    : Value::undefined(Why::hint, run.string("there is no next item").s);
  return Value::undefined(Why::attribute, run.string(std::string(name)).s, v.kind);
}

}  // namespace orlop::tmpl
