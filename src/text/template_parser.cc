#include "text/template_parser.h"

namespace orlop::tmpl {

ExprPtr make_expr(Ex kind, uint32_t line) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

StrPtr make_text(std::string text) {
  auto s = std::make_shared<Str>();
  s->text = std::move(text);
  return s;
}

namespace {

// The chain that grows: `base` itself when it is one already.
Expr& as_chain(ExprPtr& base) {
  if (base->kind != Ex::chain) {
    ExprPtr chain = make_expr(Ex::chain, base->line);
    chain->kids.push_back(std::move(base));
    base = std::move(chain);
  }
  return *base;
}

Link& add_link(ExprPtr& base, Link::What what, uint32_t line) {
  Expr& chain = as_chain(base);
  chain.links.emplace_back();
  Link& link = chain.links.back();
  link.what = what;
  link.line = line;
  return link;
}

// left op right op right …
ExprPtr flat(ExprPtr first, Ex kind) {
  ExprPtr e = make_expr(kind, first->line);
  e->kids.push_back(std::move(first));
  return e;
}

}  // namespace

const Token& Parser::expect_op(std::string_view op) {
  if (!is_op(op)) syntax_error(now().line, "expected '", op, "', got ", describe(now()));
  return next();
}

const Token& Parser::expect(Tok kind, const char* what) {
  if (now().kind != kind) syntax_error(now().line, "expected ", what, ", got ", describe(now()));
  return next();
}

int Parser::name_number(const std::string& name) {
  auto [it, fresh] = numbers_.emplace(name, static_cast<int>(out_.names.size()));
  if (fresh) out_.names.push_back(name);
  return it->second;
}

ExprPtr Parser::conditional() {
  Nest nest(*this);
  ExprPtr value = logic_or();
  size_t count = 0;
  while (is_name("if")) {
    const uint32_t line = next().line;
    if (++count > limits_.max_depth)
      syntax_error(line, "nested deeper than ", limits_.max_depth, " (max_depth)");
    ExprPtr e = make_expr(Ex::conditional, line);
    e->kids.push_back(logic_or());
    e->kids.push_back(std::move(value));
    if (skip_name("else")) e->kids.push_back(conditional());
    value = std::move(e);
  }
  return value;
}

ExprPtr Parser::logic_or() {
  ExprPtr e = logic_and();
  if (!is_name("or")) return e;
  e = flat(std::move(e), Ex::logic_or);
  while (skip_name("or")) e->kids.push_back(logic_and());
  return e;
}

ExprPtr Parser::logic_and() {
  ExprPtr e = logic_not();
  if (!is_name("and")) return e;
  e = flat(std::move(e), Ex::logic_and);
  while (skip_name("and")) e->kids.push_back(logic_not());
  return e;
}

ExprPtr Parser::logic_not() {
  if (!is_name("not")) return compare();
  Nest nest(*this);
  ExprPtr e = make_expr(Ex::logic_not, next().line);
  e->kids.push_back(logic_not());
  return e;
}

ExprPtr Parser::compare() {
  ExprPtr e = sum();
  bool wrapped = false;
  for (;;) {
    Op op;
    if (now().kind == Tok::op) {
      const std::string& t = now().text;
      if (t == "==") op = Op::eq;
      else if (t == "!=") op = Op::ne;
      else if (t == "<") op = Op::lt;
      else if (t == "<=") op = Op::le;
      else if (t == ">") op = Op::gt;
      else if (t == ">=") op = Op::ge;
      else break;
      next();
    } else if (skip_name("in")) {
      op = Op::in;
    } else if (is_name("not") && ahead().kind == Tok::name && ahead().text == "in") {
      next();
      next();
      op = Op::not_in;
    } else {
      break;
    }
    if (!wrapped) e = flat(std::move(e), Ex::compare);
    wrapped = true;
    e->ops.push_back(op);
    e->kids.push_back(sum());
  }
  return e;
}

ExprPtr Parser::sum() {
  ExprPtr e = concat();
  if (!is_op("+") && !is_op("-")) return e;
  e = flat(std::move(e), Ex::arith);
  while (is_op("+") || is_op("-")) {
    e->ops.push_back(next().text == "+" ? Op::add : Op::sub);
    e->kids.push_back(concat());
  }
  return e;
}

ExprPtr Parser::concat() {
  ExprPtr e = product();
  if (!is_op("~")) return e;
  e = flat(std::move(e), Ex::concat);
  while (skip_op("~")) e->kids.push_back(product());
  return e;
}

ExprPtr Parser::product() {
  ExprPtr e = power();
  const auto op = [&] { return is_op("*") || is_op("/") || is_op("//") || is_op("%"); };
  if (!op()) return e;
  e = flat(std::move(e), Ex::arith);
  while (op()) {
    const std::string& t = next().text;
    e->ops.push_back(t == "*" ? Op::mul : t == "/" ? Op::div : t == "%" ? Op::mod : Op::floordiv);
    e->kids.push_back(power());
  }
  return e;
}

ExprPtr Parser::power() {
  ExprPtr e = unary();
  if (!is_op("**")) return e;
  e = flat(std::move(e), Ex::arith);
  while (skip_op("**")) {
    e->ops.push_back(Op::pow);
    e->kids.push_back(unary());
  }
  return e;
}

ExprPtr Parser::unary(bool with_filter) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    Nest nest(*this);
    const Token& t = next();
    e = make_expr(t.text == "-" ? Ex::negate : Ex::plus, t.line);
    e->kids.push_back(unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filters(std::move(e)) : std::move(e);
}

ExprPtr Parser::primary() {
  const Token& t = now();
  ExprPtr e = make_expr(Ex::constant, t.line);
  switch (t.kind) {
    case Tok::name:
      next();
      if (t.text == "true" || t.text == "True") {
        e->value = Value::boolean(true);
      } else if (t.text == "false" || t.text == "False") {
        e->value = Value::boolean(false);
      } else if (t.text == "none" || t.text == "None") {
        e->value = Value::none();
      } else {
        e->kind = Ex::name;
        e->name = name_number(t.text);
        for (Stmt* f : functions_) {
          f->uses_varargs = f->uses_varargs || t.text == "varargs";
          f->uses_kwargs = f->uses_kwargs || t.text == "kwargs";
          f->uses_caller = f->uses_caller || t.text == "caller";
        }
      }
      return e;
    case Tok::string: {
      std::string text = next().text;
      while (now().kind == Tok::string) text += next().text;
      e->value = Value::string(make_text(std::move(text)));
      return e;
    }
    case Tok::integer:
      next();
      e->value = Value::integer(t.integer);
      return e;
    case Tok::real:
      next();
      e->value = Value::real(t.real);
      return e;
    case Tok::op:
      if (skip_op("(")) {
        Nest nest(*this);
        e = tuple(true, nullptr, true);
        expect_op(")");
        return e;
      }
      if (is_op("[")) return list();
      if (is_op("{")) return dict();
      break;
    default: break;
  }
  syntax_error(t.line, "unexpected ", describe(t));
}

ExprPtr Parser::tuple(bool allow_if, const char* end_name, bool parentheses) {
  const uint32_t line = now().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (now().kind == Tok::variable_end || now().kind == Tok::block_end || is_op(")") ||
        (end_name && is_name(end_name)))
      break;
    items.push_back(allow_if ? conditional() : logic_or());
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parentheses) syntax_error(now().line, "expected an expression, got ", describe(now()));
  }
  ExprPtr e = make_expr(Ex::tuple, line);
  e->kids = std::move(items);
  return e;
}

ExprPtr Parser::list() {
  Nest nest(*this);
  ExprPtr e = make_expr(Ex::list, expect_op("[").line);
  while (!is_op("]")) {
    if (!e->kids.empty()) expect_op(",");
    if (is_op("]")) break;
    e->kids.push_back(expression());
  }
  expect_op("]");
  return e;
}

ExprPtr Parser::dict() {
  Nest nest(*this);
  ExprPtr e = make_expr(Ex::dict, expect_op("{").line);
  while (!is_op("}")) {
    if (!e->kids.empty()) expect_op(",");
    if (is_op("}")) break;
    e->kids.push_back(expression());
    expect_op(":");
    e->kids.push_back(expression());
  }
  expect_op("}");
  return e;
}

ExprPtr Parser::postfix(ExprPtr e) {
  for (;;) {
    if (is_op(".") || is_op("["))
      e = subscript(std::move(e));
    else if (is_op("("))
      e = call(std::move(e));
    else
      return e;
  }
}

ExprPtr Parser::filters(ExprPtr e) {
  for (;;) {
    if (is_op("|"))
      e = filter_chain(std::move(e), false);
    else if (is_name("is"))
      e = test(std::move(e));
    else if (is_op("("))
      e = call(std::move(e));
    else
      return e;
  }
}

std::string Parser::dotted_name() {
  std::string name = expect(Tok::name, "a name").text;
  while (skip_op(".")) name += "." + expect(Tok::name, "a name").text;
  return name;
}

ExprPtr Parser::filter_chain(ExprPtr e, bool start_inline) {
  while (start_inline || is_op("|")) {
    if (!start_inline) next();
    start_inline = false;
    const uint32_t line = now().line;
    const std::string name = dotted_name();
    const int id = filter_id(name);
    if (id < 0) unsupported(line, "the filter '", name.substr(0, 60), "'");
    Arguments args;
    if (is_op("(")) args = arguments();
    Link& link = add_link(e, Link::What::filter, line);
    link.id = id;
    link.args = std::move(args);
  }
  return e;
}

ExprPtr Parser::test(ExprPtr e) {
  const uint32_t line = next().line;
  const bool negated = skip_name("not");
  const std::string name = dotted_name();
  const int id = test_id(name);
  if (id < 0) unsupported(line, "the test '", name.substr(0, 60), "'");
  Arguments args;
  const Tok k = now().kind;
  if (is_op("(")) {
    args = arguments();
  } else if ((k == Tok::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
             k == Tok::string || k == Tok::integer || k == Tok::real || is_op("[") || is_op("{")) {
    if (is_name("is")) syntax_error(now().line, "tests cannot be chained with 'is'");
    Nest nest(*this);
    args.plain.push_back(postfix(primary()));
  }
  Link& link = add_link(e, Link::What::test, line);
  link.id = id;
  link.negated = negated;
  link.args = std::move(args);
  return e;
}

ExprPtr Parser::subscript(ExprPtr e) {
  const Token& open = next();
  if (open.text == ".") {
    const Token& t = next();
    if (t.kind == Tok::name) {
      if (is_op("(") && missing_method(t.text)) unsupported(t.line, "the method '", t.text, "'");
      Link& link = add_link(e, Link::What::attribute, t.line);
      link.id = method_id(t.text);
      link.text = make_text(t.text);
      return e;
    }
    if (t.kind != Tok::integer) syntax_error(t.line, "expected a name or number after '.'");
    ExprPtr index = make_expr(Ex::constant, t.line);
    index->value = Value::integer(t.integer);
    add_link(e, Link::What::item, t.line).index = std::move(index);
    return e;
  }
  Nest nest(*this);
  std::vector<ExprPtr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    items.push_back(slice_or_index());
  }
  expect_op("]");
  ExprPtr index;
  if (items.size() == 1) {
    index = std::move(items[0]);
  } else {
    index = make_expr(Ex::tuple, open.line);
    for (const ExprPtr& i : items)
      if (i->kind == Ex::slice) unsupported(i->line, "a slice with several parts");
    index->kids = std::move(items);
  }
  add_link(e, Link::What::item, open.line).index = std::move(index);
  return e;
}

ExprPtr Parser::slice_or_index() {
  ExprPtr slice = make_expr(Ex::slice, now().line);
  slice->kids.resize(3);
  if (!skip_op(":")) {
    ExprPtr first = expression();
    if (!skip_op(":")) return first;
    slice->kids[0] = std::move(first);
  }
  const auto ends = [&] { return is_op("]") || is_op(","); };
  if (!is_op(":") && !ends()) slice->kids[1] = expression();
  if (skip_op(":") && !ends()) slice->kids[2] = expression();
  return slice;
}

ExprPtr Parser::call(ExprPtr e) {
  const uint32_t line = now().line;
  Arguments args = arguments();
  add_link(e, Link::What::call, line).args = std::move(args);
  return e;
}

Arguments Parser::arguments() {
  Nest nest(*this);
  const uint32_t line = expect_op("(").line;
  Arguments args;
  const auto ensure = [&](bool ok) {
    if (!ok) syntax_error(line, "arguments in the wrong order");
  };
  bool comma = false;
  while (!is_op(")")) {
    if (comma) {
      expect_op(",");
      if (is_op(")")) break;
    }
    if (skip_op("*")) {
      ensure(!args.star && !args.double_star);
      args.star = expression();
    } else if (skip_op("**")) {
      ensure(!args.double_star);
      args.double_star = expression();
    } else if (now().kind == Tok::name && ahead().kind == Tok::op && ahead().text == "=") {
      ensure(!args.double_star);
      std::string name = next().text;
      next();
      for (const auto& [n, e] : args.named)
        if (n == name) syntax_error(line, "argument '", name, "' is given twice");
      args.named.emplace_back(std::move(name), expression());
    } else {
      ensure(!args.star && !args.double_star && args.named.empty());
      args.plain.push_back(expression());
    }
    comma = true;
  }
  expect_op(")");
  return args;
}

}  // namespace orlop::tmpl
