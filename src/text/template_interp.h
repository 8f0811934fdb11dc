// Walks the parsed template over one set of data.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "text/template_value.h"

namespace orlop::tmpl {

struct Scope : Object {
  Scope* parent = nullptr;
  bool captured = false;  // a macro may look into it later: not to be reused
  std::vector<std::pair<int, Value>> vars;

  const Value* find(int name) const {
    for (const auto& [n, v] : vars)
      if (n == name) return &v;
    return nullptr;
  }
  void set(int name, Value value) {
    for (auto& [n, v] : vars)
      if (n == name) {
        v = std::move(value);
        return;
      }
    vars.emplace_back(name, std::move(value));
  }
};

struct Macro : Object {
  const Stmt* def = nullptr;
  Scope* scope = nullptr;
};

// The `loop` of a for statement. Pulls its items one by one, looking ahead only when asked.
struct LoopState : Object {
  std::function<bool(Value&)> pull;
  Value source;
  bool sized = false;  // len() of the source is the number of rounds
  int64_t index0 = -1;
  int64_t known_length = -1;
  std::optional<Value> ahead;
  bool ended = false;
  Value before, current;
  std::vector<Value> last_changed;
  bool changed_before = false;

  bool next(Value& out);
  bool peek();  // whether `ahead` holds another item
};

struct Args {
  std::vector<Value> plain;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by the names of a signature; error on one too many, unknown or missing.
class Bound {
 public:
  Bound(Run& run, const char* who, const Args& args, std::initializer_list<const char*> names,
        size_t required);
  const Value* operator[](size_t i) const { return values_[i]; }
  const Str* text(size_t i) const;  // null when absent or none; error when not a string
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const { return values_[i] ? truth(*values_[i]) : otherwise; }

 private:
  Run& run_;
  const char* who_;
  std::vector<const Value*> values_;
};

class Interp {
 public:
  Interp(const Template& t, Run& run, std::vector<Value> globals, int64_t now)
      : run(run), template_(t), globals_(std::move(globals)), now_(now) {}
  Rendered render();

  Value filter(int id, const Value& input, const Args& args);
  bool test(int id, const Value& input, const Args& args);
  Value method(const Value& self, int id, const Args& args);
  Value call(const Value& f, Args args);
  Value attribute(const Value& v, const StrPtr& name, int id);
  Value item(const Value& v, const Value& key);
  Value slice(const Value& v, const Value* start, const Value* stop, const Value* step);
  Value binary(Op op, const Value& a, const Value& b);
  bool compare(Op op, const Value& a, const Value& b);

  Run& run;

 private:
  enum class Flow { normal, leave, next };

  Value eval(const Expr& e, Scope& scope);
  Value chain(const Expr& e, Scope& scope, const Value* base);
  Args arguments(const Arguments& a, Scope& scope);
  Value lookup(int name, const Scope& scope) const;

  Flow block(const Block& b, Scope& scope, Builder& out);
  Flow execute(const Stmt& s, Scope& scope, Builder& out);
  Flow loop(const Stmt& s, Scope& scope, Builder& out);
  void assign(const Target& t, const Value& v, Scope& scope);
  Value call_macro(const Macro& m, const Args& args);
  Value call_function(int id, const Args& args);
  Value loop_attribute(LoopState& l, std::string_view name, const Value& v);
  Value make_macro(const Stmt& s, Scope& scope);
  Scope* enter(Scope* parent);
  void leave(Scope* scope);

  const Template& template_;
  std::vector<Value> globals_;  // by name number; undefined when absent
  int64_t now_;
  std::vector<Scope*> spare_;
  size_t calls_ = 0;
};

enum class Func : int { range, dict, space, cycler, joiner, raise, now };
std::optional<Func> function_named(std::string_view name);

// Methods that this interpreter has, on the kinds that have them.
enum class Has { no, yes, unsafe };
Has has_method(Kind kind, int id);
const char* method_name(int id);

// template_json.cc, template_time.cc, template_numbers.cc
Value to_json(Interp& in, const Value& v, const Args& args);
Value format_time(Run& run, const Value& format, int64_t now);
Value to_int(Run& run, const Value& v, const Value* otherwise, int64_t base);
Value to_real(Run& run, const Value& v, const Value* otherwise);
Value round_number(Run& run, const Value& v, int64_t digits, std::string_view how);
Value arithmetic(Run& run, Op op, const Value& a, const Value& b);

}  // namespace orlop::tmpl
