#include "text/template_interp.h"

#include "text/template_string.h"

namespace orlop::tmpl {

bool LoopState::next(Value& out) {
  if (ahead) {
    out = std::move(*ahead);
    ahead.reset();
  } else if (ended || !pull(out)) {
    ended = true;
    return false;
  }
  ++index0;
  before = current;
  current = out;
  return true;
}

bool LoopState::peek() {
  if (ahead) return true;
  Value v;
  if (ended || !pull(v)) {
    ended = true;
    return false;
  }
  ahead = std::move(v);
  return true;
}

Rendered Interp::render() {
  Builder out(run);
  Scope* top = enter(nullptr);
  block(template_.body, *top, out);
  return out.take();
}

Scope* Interp::enter(Scope* parent) {
  Scope* s;
  if (spare_.empty()) {
    s = run.make<Scope>();
  } else {
    s = spare_.back();
    spare_.pop_back();
  }
  s->parent = parent;
  return s;
}

void Interp::leave(Scope* s) {
  if (s->captured) return;
  s->vars.clear();
  spare_.push_back(s);
}

Value Interp::lookup(int name, const Scope& scope) const {
  for (const Scope* s = &scope; s; s = s->parent)
    if (const Value* v = s->find(name)) return *v;
  return globals_[static_cast<size_t>(name)];
}

// ---- statements ----

Interp::Flow Interp::block(const Block& b, Scope& scope, Builder& out) {
  Deeper deeper(run);
  for (const auto& s : b) {
    run.step();
    run.line = s->line;
    const Flow flow = execute(*s, scope, out);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interp::Flow Interp::execute(const Stmt& s, Scope& scope, Builder& out) {
  switch (s.kind) {
    case St::text: out.add(*s.text); return Flow::normal;
    case St::print:
      for (const ExprPtr& e : s.exprs) write_str(run, out, eval(*e, scope));
      return Flow::normal;
    case St::branch:
      for (size_t i = 0; i < s.exprs.size(); ++i)
        if (truth(eval(*s.exprs[i], scope))) return block(s.bodies[i], scope, out);
      if (s.bodies.size() > s.exprs.size()) return block(s.bodies.back(), scope, out);
      return Flow::normal;
    case St::loop: return loop(s, scope, out);
    case St::set: assign(s.targets[0], eval(*s.exprs[0], scope), scope); return Flow::normal;
    case St::set_block:
    case St::filter: {
      Builder text(run);
      Scope* inner = enter(&scope);
      const Flow flow = block(s.bodies[0], *inner, text);
      leave(inner);
      if (flow != Flow::normal) return flow;
      run.line = s.line;
      Value v = text.finish();
      if (!s.exprs.empty()) v = chain(*s.exprs[0], scope, &v);
      if (s.kind == St::filter)
        write_str(run, out, v);
      else
        assign(s.targets[0], v, scope);
      return Flow::normal;
    }
    case St::with: {
      std::vector<Value> values;
      for (const ExprPtr& e : s.exprs) values.push_back(eval(*e, scope));
      Scope* inner = enter(&scope);
      for (size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i], *inner);
      const Flow flow = block(s.bodies[0], *inner, out);
      leave(inner);
      return flow;
    }
    case St::scope: {
      Scope* inner = enter(&scope);
      block(s.bodies[0], *inner, out);
      leave(inner);
      return Flow::normal;
    }
    case St::macro: scope.set(s.name, make_macro(s, scope)); return Flow::normal;
    case St::call: {
      Value caller = make_macro(s, scope);
      const Expr& e = *s.exprs[0];
      // All but the last link name the macro; the last is the call, which gets the body as well.
      Value v = eval(*e.kids[0], scope);
      for (size_t i = 0; i < e.links.size(); ++i) {
        const Link& link = e.links[i];
        run.line = link.line;
        const bool last = i + 1 == e.links.size();
        if (link.what == Link::What::attribute) {
          v = attribute(v, link.text, link.id);
        } else if (link.what == Link::What::call) {
          Args args = arguments(link.args, scope);
          if (last) args.named.emplace_back("caller", caller);
          v = call(v, std::move(args));
        } else if (link.what == Link::What::item && link.index->kind != Ex::slice) {
          v = item(v, eval(*link.index, scope));
        } else {
          fail(Status::unsupported, "chat template, line ", s.line,
               ": a call block on such an expression is not supported");
        }
      }
      write_str(run, out, v);
      return Flow::normal;
    }
    case St::break_loop: return Flow::leave;
    case St::next_round: return Flow::next;
  }
  return Flow::normal;
}

Interp::Flow Interp::loop(const Stmt& s, Scope& scope, Builder& out) {
  LoopState* state = run.make<LoopState>();
  state->source = eval(*s.exprs[0], scope);
  auto items = std::make_shared<Iter>(run, state->source);
  Scope* probe = nullptr;  // the filter's own view of the targets
  if (s.exprs.size() > 1) {
    probe = enter(&scope);
    probe->captured = true;
    state->pull = [this, items, probe, &s](Value& v) {
      while (items->next(v)) {
        probe->vars.clear();
        assign(s.targets[0], v, *probe);
        if (truth(eval(*s.exprs[1], *probe))) return true;
      }
      return false;
    };
  } else {
    state->sized = !state->source.is(Kind::generator);
    state->pull = [items](Value& v) { return items->next(v); };
  }

  Scope* body = enter(&scope);
  bool completed = false;
  Value v;
  while (state->next(v)) {
    run.step();
    if (body->captured)
      body = enter(&scope);
    else
      body->vars.clear();
    body->set(template_.loop_name, Value::object(Kind::loop, state));
    assign(s.targets[0], v, *body);
    const Flow flow = block(s.bodies[0], *body, out);
    if (flow == Flow::leave) break;
    // As the reference: a round that ended in `continue` does not count for `else`.
    if (flow == Flow::normal) completed = true;
  }
  leave(body);
  // Nothing may pull from it any more.
  state->pull = [](Value&) { return false; };
  if (!completed && s.bodies.size() > 1) {
    Scope* other = enter(&scope);
    const Flow flow = block(s.bodies[1], *other, out);
    leave(other);
    return flow;
  }
  return Flow::normal;
}

void Interp::assign(const Target& t, const Value& v, Scope& scope) {
  switch (t.what) {
    case Target::What::name: scope.set(t.name, v); return;
    case Target::What::attribute: {
      const Value holder = lookup(t.name, scope);
      if (!holder.is(Kind::space)) run.error("cannot assign attribute on non-namespace object");
      holder.as<Dict>().set(run, Value::string(t.attribute), v);
      return;
    }
    case Target::What::tuple: {
      Deeper deeper(run);
      if (v.is(Kind::undefined)) run.error("not enough values to unpack");
      Iter it(run, v);
      Value item;
      for (size_t i = 0; i < t.parts.size(); ++i) {
        if (!it.next(item))
          run.error("not enough values to unpack (expected ", t.parts.size(), ", got ", i, ")");
        assign(t.parts[i], item, scope);
      }
      if (it.next(item)) run.error("too many values to unpack (expected ", t.parts.size(), ")");
      return;
    }
  }
}

Value Interp::make_macro(const Stmt& s, Scope& scope) {
  for (Scope* p = &scope; p && !p->captured; p = p->parent) p->captured = true;
  Macro* m = run.make<Macro>();
  m->def = &s;
  m->scope = &scope;
  return Value::object(Kind::macro, m);
}

Value Interp::call_macro(const Macro& m, const Args& args) {
  const Stmt& def = *m.def;
  const std::string& who = def.text->text;
  if (++calls_ > run.limits.max_depth) {
    --calls_;
    run.error("macros call each other deeper than ", run.limits.max_depth, " (max_depth)");
  }
  const uint32_t line = run.line;
  Scope* scope = enter(m.scope);
  std::vector<bool> used(args.named.size());
  const auto named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < args.named.size(); ++i)
      if (args.named[i].first == name) {
        used[i] = true;
        return &args.named[i].second;
      }
    return nullptr;
  };
  const size_t n = def.params.size();
  std::vector<const Value*> given(n);
  for (size_t i = 0; i < n; ++i)
    given[i] = i < args.plain.size() ? &args.plain[i] : named(def.param_names[i]->text);
  if (def.uses_caller) {
    const Value* caller = named("caller");
    scope->set(template_.caller_name,
               caller ? *caller
                      : Value::undefined(Why::hint, run.string("No caller defined").s));
  }
  if (def.uses_kwargs) {
    Dict* rest = run.make<Dict>();
    for (size_t i = 0; i < args.named.size(); ++i)
      if (!used[i]) rest->set(run, run.string(args.named[i].first), args.named[i].second);
    scope->set(template_.kwargs_name, run.dict(rest));
  } else {
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i])
        run.error("macro '", who, "' takes no keyword argument '", args.named[i].first, "'");
  }
  std::vector<Value> extra;
  if (args.plain.size() > n) {
    if (!def.uses_varargs)
      run.error("macro '", who, "' takes not more than ", n, " argument(s)");
    extra.assign(args.plain.begin() + static_cast<std::ptrdiff_t>(n), args.plain.end());
  }
  if (def.uses_varargs) scope->set(template_.varargs_name, run.list(std::move(extra), Kind::tuple));
  for (size_t i = 0; i < n; ++i) {
    const size_t first_default = n - def.defaults.size();
    if (given[i])
      scope->set(def.params[i], *given[i]);
    else if (i >= first_default)
      scope->set(def.params[i], eval(*def.defaults[i - first_default], *scope));
    else
      scope->set(def.params[i],
                 Value::undefined(Why::hint, run.string("parameter '" + def.param_names[i]->text +
                                                        "' was not provided").s));
  }
  Builder out(run);
  block(def.bodies[0], *scope, out);
  leave(scope);
  --calls_;
  run.line = line;
  return out.finish();
}

}  // namespace orlop::tmpl
