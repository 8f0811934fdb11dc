// Values of the chat-template language: Python's scalars, strings that remember which of their bytes
// came from the caller's data, and containers. Strings are counted; everything else belongs to the
// Run of one rendering, so that cycles through namespaces neither leak nor recurse at the end.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stack.h"
#include "text/chat_template.h"

namespace orlop::tmpl {

// Wide enough for every JSON integer and for products of two of them.
__extension__ typedef __int128 Int;

struct Run;

struct Str {
  std::string text;
  std::vector<ByteRange> marks;  // untrusted bytes, sorted, disjoint
  size_t* live = nullptr;        // where the bytes are counted; null: part of the template
  size_t charged = 0;

  Str() = default;
  Str(const Str&) = delete;
  Str& operator=(const Str&) = delete;
  ~Str() {
    if (live) *live -= charged;
  }
};
using StrPtr = std::shared_ptr<const Str>;

enum class Kind : uint8_t {
  undefined, none, boolean, integer, real, string, list, tuple, dict, view, range, generator,
  space, loop, macro, method, function, cycler, joiner,
};

struct Object {
  virtual ~Object() = default;
};

// Why a value is undefined; decides the text of the error that its use raises.
enum class Why : uint8_t { name, attribute, hint, unsafe };

struct Value {
  Kind kind = Kind::undefined;
  bool markup = false;       // string out of |safe or |escape
  Why why = Why::hint;       // undefined only
  Kind of = Kind::undefined;  // undefined only: the kind whose attribute is missing
  union {
    bool b;
    Int i = 0;
    double d;
    Object* o;
  };
  StrPtr s;  // string; undefined: the name or hint

  Value() = default;
  static Value none() { return of_kind(Kind::none); }
  static Value boolean(bool b) {
    Value v = of_kind(Kind::boolean);
    v.b = b;
    return v;
  }
  static Value integer(Int i) {
    Value v = of_kind(Kind::integer);
    v.i = i;
    return v;
  }
  static Value real(double d) {
    Value v = of_kind(Kind::real);
    v.d = d;
    return v;
  }
  static Value string(StrPtr s) {
    Value v = of_kind(Kind::string);
    v.s = std::move(s);
    return v;
  }
  static Value object(Kind k, Object* o) {
    Value v = of_kind(k);
    v.o = o;
    return v;
  }
  static Value undefined(Why why, StrPtr text, Kind of = Kind::undefined) {
    Value v;
    v.why = why;
    v.s = std::move(text);
    v.of = of;
    return v;
  }

  bool is(Kind k) const { return kind == k; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  bool is_int() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const { return is_int() || kind == Kind::real; }
  Int as_int() const { return kind == Kind::boolean ? Int{b} : i; }
  double as_real() const { return kind == Kind::real ? d : static_cast<double>(as_int()); }
  std::string_view text() const { return s->text; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(o);
  }

 private:
  static Value of_kind(Kind k) {
    Value v;
    v.kind = k;
    return v;
  }
};

struct List : Object {
  std::vector<Value> items;
};

// Insertion-ordered; equal keys as in Python (1 == 1.0 == True).
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  std::map<std::string, uint32_t, std::less<>> index;  // canonical key -> position

  const Value* find(Run& run, const Value& key) const;
  const Value* find(std::string_view name) const;
  void set(Run& run, const Value& key, Value value);
};

struct View : Object {
  enum class What { keys, values, items } what = What::keys;
  const Dict* dict = nullptr;
};

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

struct Generator : Object {
  std::function<bool(Value&)> next;
};

struct Cycler : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct Joiner : Object {
  Value separator;
  bool used = false;
};
struct Method : Object {
  Value self;
  int id = 0;
};

// Left free when nesting is refused: what the deepest calls between two checks take.
constexpr size_t template_stack_reserve = 24 << 10;

// What one rendering uses and may use; owner of its objects.
struct Run {
  explicit Run(const RenderLimits& l) : limits(l), max_live(l.max_output * 4 + (size_t{1} << 20)) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  RenderLimits limits;
  StackGuard stack{template_stack_reserve};  // rendering stays on the thread that began it
  size_t max_live;
  size_t live = 0;   // bytes of strings and objects alive
  uint64_t steps = 0;
  size_t depth = 0;  // evaluations inside evaluations
  uint32_t line = 1;
  std::vector<std::unique_ptr<Object>> objects;

  void step(uint64_t n = 1) {
    steps += n;
    if (steps > limits.max_steps) too_many_steps();
    if (stack.low()) too_little_stack();
  }
  // Work on n bytes: one step for every 256, so that long strings cannot hide their cost.
  void work(size_t bytes) { step(bytes >> 8); }
  void charge(size_t bytes) {
    live += bytes;
    if (live > max_live) too_much_memory();
  }
  void check_size(size_t bytes) const {
    if (bytes > limits.max_output) too_long(bytes);
  }
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(Status::invalid_argument, "chat template, line ", line, ": ", parts...);
  }

  template <class T>
  T* make() {
    charge(sizeof(T) + 32);
    auto owned = std::make_unique<T>();
    T* p = owned.get();
    objects.push_back(std::move(owned));
    return p;
  }
  Value list(std::vector<Value> items, Kind kind = Kind::list);
  Value string(std::string text);            // trusted
  Value string(std::string_view text, bool untrusted);
  Value dict(Dict* d) { return Value::object(Kind::dict, d); }
  Value generator(std::function<bool(Value&)> next);

 private:
  [[noreturn]] void too_many_steps() const;
  [[noreturn]] void too_little_stack() const;
  [[noreturn]] void too_much_memory() const;
  [[noreturn]] void too_long(size_t bytes) const;
};

// Guards every recursion over values and code.
class Deeper {
 public:
  explicit Deeper(Run& run) : run_(run) {
    if (++run_.depth > run_.limits.max_depth * 8) {
      --run_.depth;
      run.error("nested too deeply (max_depth ", run.limits.max_depth, ")");
    }
  }
  ~Deeper() { --run_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Run& run_;
};

// Builds a string and its marks; refuses to grow beyond max_output.
class Builder {
 public:
  explicit Builder(Run& run) : run_(run) {}
  void trusted(std::string_view text) { add(text, false); }
  void add(std::string_view text, bool untrusted);
  void add(const Str& s) { add(s, 0, s.text.size()); }
  void add(const Str& s, size_t begin, size_t end);  // bytes [begin, end) of s
  size_t size() const { return text_.size(); }
  Value finish();
  Rendered take();

 private:
  void mark(size_t begin, size_t end);
  Run& run_;
  std::string text_;
  std::vector<ByteRange> marks_;
};

// One pass over any iterable; strings give their characters, mappings their keys.
class Iter {
 public:
  Iter(Run& run, Value source);  // error when it is not iterable
  bool next(Value& out);

 private:
  Run& run_;
  Value source_;
  size_t at_ = 0;
};

Value substring(Run& run, const Str& s, size_t begin, size_t end);
std::string key_of(Run& run, const Value& v);  // canonical; error when not hashable
bool truth(const Value& v);
bool equal(Run& run, const Value& a, const Value& b);
int order(Run& run, const Value& a, const Value& b, const char* op);  // < 0, 0, > 0; 2: unordered
bool contains(Run& run, const Value& item, const Value& container);
std::vector<Value> to_vector(Run& run, const Value& v);
int64_t length(Run& run, const Value& v);
const char* type_name(const Value& v);
const char* type_name(Kind k);
[[noreturn]] void raise_undefined(Run& run, const Value& v);
// Value as text, as Python's str() and repr() write it.
Value to_string(Run& run, const Value& v);
void write_str(Run& run, Builder& out, const Value& v);
void write_repr(Run& run, Builder& out, const Value& v);
std::string int_text(Int i);
std::string real_text(double d);

}  // namespace orlop::tmpl
