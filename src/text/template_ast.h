// The parsed template. Chains (a + b + c, a.b.c|f|g) are lists, so that only real nesting nests.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template_value.h"

namespace orlop::tmpl {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Ex : uint8_t {
  constant, name, tuple, list, dict, logic_and, logic_or, logic_not, compare, arith, concat,
  negate, plus, conditional, chain, slice,
};

enum class Op : uint8_t {
  add, sub, mul, div, floordiv, mod, pow, eq, ne, lt, le, gt, ge, in, not_in,
};

struct Arguments {
  std::vector<ExprPtr> plain;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

// One step of a chain: .name, [index], (call), |filter, is test.
struct Link {
  enum class What : uint8_t { attribute, item, call, filter, test } what = What::attribute;
  bool negated = false;  // is not
  uint32_t line = 0;
  int id = 0;            // filter, test or method number; -1: no method of that name
  StrPtr text;           // attribute name
  ExprPtr index;
  Arguments args;
};

struct Expr {
  Ex kind = Ex::constant;
  uint32_t line = 0;
  int name = 0;  // Ex::name
  Value value;   // Ex::constant
  std::vector<ExprPtr> kids;  // operands; dict: key, value, …; conditional: test, then, else?;
                              // slice: start?, stop?, step?; chain: the base
  std::vector<Op> ops;        // compare, arith: one less than kids
  std::vector<Link> links;    // chain
};

struct Target {
  enum class What : uint8_t { name, tuple, attribute } what = What::name;
  uint32_t line = 0;
  int name = 0;
  StrPtr attribute;
  std::vector<Target> parts;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

enum class St : uint8_t {
  text, print, branch, loop, set, set_block, with, macro, call, filter, scope, break_loop,
  next_round,
};

struct Stmt {
  St kind = St::text;
  uint32_t line = 0;
  StrPtr text;                 // text; macro: its name
  int name = 0;                // macro
  std::vector<ExprPtr> exprs;  // print, set: value; branch: tests; loop: iterable, filter?;
                               // with: values; call: the call; filter: chain on null base
  std::vector<Target> targets; // loop, set, with
  std::vector<Block> bodies;   // branch: one a test, then else?; loop: body, else?
  std::vector<int> params;     // macro, call
  std::vector<StrPtr> param_names;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Template {
  Block body;
  std::vector<std::string> names;  // by number
  int loop_name = 0, varargs_name = 0, kwargs_name = 0, caller_name = 0;
};

// Filters, tests and methods by number; -1: unknown.
int filter_id(std::string_view name);
int test_id(std::string_view name);
int method_id(std::string_view name);
// A method of Python's str, list or dict that this interpreter lacks.
bool missing_method(std::string_view name);

Template parse_template(std::string_view source, const RenderLimits& limits);

}  // namespace orlop::tmpl
