// Recursive descent over the tokens; depth is counted, so hostile nesting ends in an error.
#pragma once
#include <map>

#include "base/stack.h"
#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace orlop::tmpl {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const RenderLimits& limits)
      : tokens_(std::move(tokens)), limits_(limits) {}
  Template run();

 private:
  // template_parser.cc: expressions
  ExprPtr expression() { return conditional(); }
  ExprPtr conditional();
  ExprPtr logic_or();
  ExprPtr logic_and();
  ExprPtr logic_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr base);
  ExprPtr filters(ExprPtr base);
  ExprPtr filter_chain(ExprPtr base, bool start_inline);
  ExprPtr test(ExprPtr base);
  ExprPtr subscript(ExprPtr base);
  ExprPtr slice_or_index();
  ExprPtr call(ExprPtr base);
  Arguments arguments();
  ExprPtr list();
  ExprPtr dict();
  // {allow_if}: a conditional may appear; {end_name}: a name that ends the tuple.
  ExprPtr tuple(bool allow_if = true, const char* end_name = nullptr, bool parentheses = false);
  std::string dotted_name();

  // template_statements.cc
  Block block(std::initializer_list<const char*> ends);
  Block statements(std::initializer_list<const char*> ends);
  std::unique_ptr<Stmt> statement();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call();
  void signature(Stmt& s);
  void function_body(Stmt& s, const char* end);
  Target target(bool attributes, const char* end_name = nullptr);
  Target one_target(bool attributes);

  // Counts nesting for as long as it lives.
  struct Nest {
    explicit Nest(Parser& parser) : p(parser) {
      if (++p.depth_ > p.limits_.max_depth) {
        const uint32_t line = p.now().line;
        --p.depth_;
        syntax_error(line, "nested deeper than ", p.limits_.max_depth, " (max_depth)");
      }
      if (p.stack_.low()) {
        --p.depth_;
        syntax_error(p.now().line, "nested deeper than this thread's stack allows");
      }
    }
    ~Nest() { --p.depth_; }
    Nest(const Nest&) = delete;
    Parser& p;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() {
    const Token& t = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool is_op(std::string_view op) const { return now().kind == Tok::op && now().text == op; }
  bool is_name(std::string_view name) const {
    return now().kind == Tok::name && now().text == name;
  }
  bool skip_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  const Token& expect_op(std::string_view op);
  const Token& expect(Tok kind, const char* what);
  int name_number(const std::string& name);

  std::vector<Token> tokens_;
  RenderLimits limits_;
  size_t at_ = 0;
  size_t depth_ = 0;
  StackGuard stack_{24 << 10};  // left free: what the calls between two checks take
  int loops_ = 0;  // enclosing loops within the function
  std::vector<Stmt*> functions_;
  std::map<std::string, int> numbers_;
  Template out_;
};

ExprPtr make_expr(Ex kind, uint32_t line);
StrPtr make_text(std::string text);

}  // namespace orlop::tmpl
