#include <algorithm>

#include "text/template_parser.h"

namespace orlop::tmpl {

Template Parser::run() {
  out_.loop_name = name_number("loop");
  out_.varargs_name = name_number("varargs");
  out_.kwargs_name = name_number("kwargs");
  out_.caller_name = name_number("caller");
  out_.body = block({});
  return std::move(out_);
}

Template parse_template(std::string_view source, const RenderLimits& limits) {
  return Parser(tokenize(source, limits), limits).run();
}

// Up to one of the end tags, whose name is then the current token (or to the end of the template).
Block Parser::block(std::initializer_list<const char*> ends) {
  Nest nest(*this);
  Block body;
  while (now().kind != Tok::end) {
    const Token& t = now();
    if (t.kind == Tok::data) {
      auto s = std::make_unique<Stmt>();
      s->kind = St::text;
      s->line = t.line;
      s->text = make_text(next().text);
      body.push_back(std::move(s));
    } else if (t.kind == Tok::variable_begin) {
      next();
      auto s = std::make_unique<Stmt>();
      s->kind = St::print;
      s->line = t.line;
      s->exprs.push_back(tuple());
      expect(Tok::variable_end, "'}}'");
      body.push_back(std::move(s));
    } else {
      next();  // block_begin
      for (const char* end : ends)
        if (is_name(end)) return body;
      body.push_back(statement());
      expect(Tok::block_end, "'%}'");
    }
  }
  if (ends.size()) {
    std::string wanted;
    for (const char* end : ends) wanted += (wanted.empty() ? "'" : " or '") + std::string(end) + "'";
    syntax_error(now().line, "the template ends where ", wanted, " is expected");
  }
  return body;
}

Block Parser::statements(std::initializer_list<const char*> ends) {
  skip_op(":");
  expect(Tok::block_end, "'%}'");
  return block(ends);
}

std::unique_ptr<Stmt> Parser::statement() {
  const Token& t = now();
  if (t.kind != Tok::name) syntax_error(t.line, "expected the name of a tag, got ", describe(t));
  const std::string& tag = t.text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "with") return parse_with();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call();

  auto s = std::make_unique<Stmt>();
  s->line = t.line;
  if (tag == "break" || tag == "continue") {
    next();
    if (loops_ == 0) syntax_error(t.line, "'", tag, "' outside of a loop");
    s->kind = tag == "break" ? St::break_loop : St::next_round;
    return s;
  }
  if (tag == "print") {
    next();
    s->kind = St::print;
    while (now().kind != Tok::block_end) {
      if (!s->exprs.empty()) expect_op(",");
      s->exprs.push_back(expression());
    }
    return s;
  }
  if (tag == "filter") {
    next();
    s->kind = St::filter;
    // The chain stands on a placeholder that the body's text replaces.
    s->exprs.push_back(filter_chain(make_expr(Ex::constant, t.line), true));
    s->bodies.push_back(statements({"endfilter"}));
    next();
    return s;
  }
  if (tag == "generation") {  // marks the assistant's words for training; prints its body
    next();
    s->kind = St::scope;
    const int loops = std::exchange(loops_, 0);
    s->bodies.push_back(statements({"endgeneration"}));
    loops_ = loops;
    next();
    return s;
  }
  for (const char* known : {"include", "import", "from", "extends", "block", "autoescape", "do",
                            "trans", "pluralize", "debug"})
    if (tag == known) unsupported(t.line, "the tag '", tag, "'");
  syntax_error(t.line, "unknown tag '", tag.substr(0, 60), "'");
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::loop;
  s->line = next().line;
  s->targets.push_back(target(false, "in"));
  if (!skip_name("in")) syntax_error(now().line, "expected 'in', got ", describe(now()));
  s->exprs.push_back(tuple(false, "recursive"));
  if (skip_name("if")) s->exprs.push_back(expression());
  if (is_name("recursive")) unsupported(now().line, "a recursive loop");
  ++loops_;
  s->bodies.push_back(statements({"endfor", "else"}));
  --loops_;
  if (next().text == "else") {
    s->bodies.push_back(statements({"endfor"}));
    next();
  }
  return s;
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::branch;
  s->line = next().line;
  for (;;) {
    s->exprs.push_back(tuple(false));
    s->bodies.push_back(statements({"elif", "else", "endif"}));
    const Token& t = next();
    if (t.text == "elif") continue;
    if (t.text == "else") {
      s->bodies.push_back(statements({"endif"}));
      next();
    }
    return s;
  }
}

Target Parser::one_target(bool attributes) {
  const Token& t = now();
  Target out;
  out.line = t.line;
  if (skip_op("(")) {
    Nest nest(*this);
    out.what = Target::What::tuple;
    bool comma = true;
    while (!is_op(")")) {
      if (!comma) expect_op(",");
      if (is_op(")")) break;
      out.parts.push_back(one_target(false));
      comma = false;
    }
    const bool trailing = tokens_[at_ - 1].kind == Tok::op && tokens_[at_ - 1].text == ",";
    expect_op(")");
    if (out.parts.size() == 1 && !trailing) return std::move(out.parts[0]);
    return out;
  }
  if (t.kind != Tok::name) syntax_error(t.line, "cannot assign to ", describe(t));
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"})
    if (t.text == reserved) syntax_error(t.line, "cannot assign to ", describe(t));
  next();
  out.name = name_number(t.text);
  if (attributes && skip_op(".")) {
    out.what = Target::What::attribute;
    out.attribute = make_text(expect(Tok::name, "a name").text);
  }
  return out;
}

Target Parser::target(bool attributes, const char* end_name) {
  Target first = one_target(attributes);
  if (!is_op(",")) return first;
  Target all;
  all.what = Target::What::tuple;
  all.line = first.line;
  all.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (now().kind == Tok::block_end || is_op("=") || (end_name && is_name(end_name))) break;
    all.parts.push_back(one_target(attributes));
  }
  return all;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::set;
  s->line = next().line;
  s->targets.push_back(target(true));
  if (skip_op("=")) {
    s->exprs.push_back(tuple());
    return s;
  }
  s->kind = St::set_block;
  if (is_op("|")) s->exprs.push_back(filter_chain(make_expr(Ex::constant, s->line), false));
  s->bodies.push_back(statements({"endset"}));
  next();
  return s;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::with;
  s->line = next().line;
  while (now().kind != Tok::block_end) {
    if (!s->targets.empty()) expect_op(",");
    s->targets.push_back(one_target(false));
    expect_op("=");
    s->exprs.push_back(expression());
  }
  s->bodies.push_back(statements({"endwith"}));
  next();
  return s;
}

void Parser::signature(Stmt& s) {
  expect_op("(");
  while (!is_op(")")) {
    if (!s.params.empty()) expect_op(",");
    const Token& t = now();
    const Target param = one_target(false);
    if (param.what != Target::What::name) syntax_error(t.line, "expected a parameter's name");
    if (std::find(s.params.begin(), s.params.end(), param.name) != s.params.end())
      syntax_error(t.line, "parameter '", t.text, "' is given twice");
    if (skip_op("="))
      s.defaults.push_back(expression());
    else if (!s.defaults.empty())
      syntax_error(t.line, "a parameter without default follows one with default");
    s.params.push_back(param.name);
    s.param_names.push_back(make_text(t.text));
  }
  expect_op(")");
}

// The body is a function of its own: loops outside cannot be left from it.
void Parser::function_body(Stmt& s, const char* end) {
  functions_.push_back(&s);
  const int loops = std::exchange(loops_, 0);
  s.bodies.push_back(statements({end}));
  loops_ = loops;
  functions_.pop_back();
  next();
  for (int p : s.params) {  // a parameter of that name is an ordinary one
    if (p == out_.varargs_name) s.uses_varargs = false;
    if (p == out_.kwargs_name) s.uses_kwargs = false;
    if (p == out_.caller_name) s.uses_caller = false;
  }
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::macro;
  s->line = next().line;
  const Token& name = now();
  const Target t = one_target(false);
  s->name = t.name;
  s->text = make_text(name.text);
  signature(*s);
  function_body(*s, "endmacro");
  return s;
}

std::unique_ptr<Stmt> Parser::parse_call() {
  auto s = std::make_unique<Stmt>();
  s->kind = St::call;
  s->line = next().line;
  s->text = make_text("caller");
  if (is_op("(")) signature(*s);
  s->exprs.push_back(expression());
  const Expr& e = *s->exprs[0];
  if (e.kind != Ex::chain || e.links.back().what != Link::What::call)
    syntax_error(s->line, "expected a call");
  function_body(*s, "endcall");
  return s;
}

}  // namespace orlop::tmpl
