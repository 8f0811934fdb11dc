#include "text/template_value.h"

#include <algorithm>
#include <cmath>

#include "text/template_string.h"

namespace orlop::tmpl {

// ---- limits ----

void Run::too_many_steps() const {
  error("more than ", limits.max_steps, " steps (max_steps)");
}
void Run::too_little_stack() const {
  error("nested deeper than this thread's stack allows");
}
void Run::too_much_memory() const {
  error("values take more than ", max_live, " bytes (max_output)");
}
void Run::too_long(size_t bytes) const {
  error("a text of ", bytes, " bytes is longer than ", limits.max_output, " (max_output)");
}

Value Run::list(std::vector<Value> items, Kind kind) {
  charge(items.size() * sizeof(Value));
  List* l = make<List>();
  l->items = std::move(items);
  return Value::object(kind, l);
}

Value Run::string(std::string text) {
  check_size(text.size());
  auto s = std::make_shared<Str>();
  const size_t bytes = text.size() + sizeof(Str);
  charge(bytes);
  s->charged = bytes;
  s->live = &live;
  s->text = std::move(text);
  return Value::string(std::move(s));
}

Value Run::string(std::string_view text, bool untrusted) {
  Builder b(*this);
  b.add(text, untrusted);
  return b.finish();
}

Value Run::generator(std::function<bool(Value&)> next) {
  charge(128);
  Generator* g = make<Generator>();
  g->next = std::move(next);
  return Value::object(Kind::generator, g);
}

// ---- strings with marks ----

void Builder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!marks_.empty() && marks_.back().end == begin)
    marks_.back().end = end;
  else
    marks_.push_back({begin, end});
}

void Builder::add(std::string_view text, bool untrusted) {
  run_.check_size(text_.size() + text.size());
  run_.work(text.size());
  if (untrusted) mark(text_.size(), text_.size() + text.size());
  text_.append(text);
}

void Builder::add(const Str& s, size_t begin, size_t end) {
  const size_t base = text_.size();
  run_.check_size(base + (end - begin));
  run_.work(end - begin);
  // The first range that ends after `begin`.
  auto it = std::upper_bound(s.marks.begin(), s.marks.end(), begin,
                             [](size_t b, const ByteRange& r) { return b < r.end; });
  for (; it != s.marks.end() && it->begin < end; ++it)
    mark(base + (std::max(it->begin, begin) - begin), base + (std::min(it->end, end) - begin));
  text_.append(s.text, begin, end - begin);
}

Value Builder::finish() {
  auto s = std::make_shared<Str>();
  const size_t bytes = text_.size() + marks_.size() * sizeof(ByteRange) + sizeof(Str);
  run_.charge(bytes);
  s->charged = bytes;
  s->live = &run_.live;
  s->text = std::move(text_);
  s->marks = std::move(marks_);
  return Value::string(std::move(s));
}

Rendered Builder::take() { return {std::move(text_), std::move(marks_)}; }

Value substring(Run& run, const Str& s, size_t begin, size_t end) {
  Builder b(run);
  b.add(s, begin, end);
  return b.finish();
}

// ---- names and errors ----

const char* type_name(Kind k) {
  switch (k) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::view: return "dict view";
    case Kind::range: return "range";
    case Kind::generator: return "generator";
    case Kind::space: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::macro: return "Macro";
    case Kind::method: return "method";
    case Kind::function: return "function";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
  }
  return "?";
}
const char* type_name(const Value& v) { return type_name(v.kind); }

void raise_undefined(Run& run, const Value& v) {
  const std::string_view text = v.s ? std::string_view(v.s->text).substr(0, 200) : "value";
  switch (v.why) {
    case Why::name: run.error("'", text, "' is undefined");
    case Why::attribute:
      run.error("'", type_name(v.of), " object' has no attribute '", text, "'");
    case Why::unsafe:
      run.error("access to attribute '", text, "' of '", type_name(v.of), "' object is unsafe");
    case Why::hint: break;
  }
  run.error(text);
}

// ---- mappings ----

std::string key_of(Run& run, const Value& v) {
  Deeper deeper(run);
  switch (v.kind) {
    case Kind::string: return "s" + v.s->text;
    case Kind::none: return "n";
    case Kind::boolean:
    case Kind::integer: return "i" + int_text(v.as_int());
    case Kind::real:
      if (v.d == std::floor(v.d) && std::fabs(v.d) < 0x1p126)
        return "i" + int_text(static_cast<Int>(v.d));
      return "f" + real_text(v.d);
    case Kind::undefined: return "u";
    case Kind::tuple: {
      std::string key = "t";
      for (const Value& item : v.as<List>().items) {
        const std::string part = key_of(run, item);
        key += std::to_string(part.size());
        key += ':';
        key += part;
        run.check_size(key.size());
        run.step(1 + (part.size() >> 8));
      }
      return key;
    }
    case Kind::list:
    case Kind::dict:
    case Kind::view: run.error("unhashable type: '", type_name(v), "'");
    default: return "o" + std::to_string(reinterpret_cast<uintptr_t>(v.o)) + type_name(v);
  }
}

const Value* Dict::find(Run& run, const Value& key) const {
  if (key.is(Kind::string)) return find(key.text());
  auto it = index.find(key_of(run, key));
  return it == index.end() ? nullptr : &items[it->second].second;
}

const Value* Dict::find(std::string_view name) const {
  if (items.size() <= 8) {
    for (const auto& [k, v] : items)
      if (k.is(Kind::string) && k.text() == name) return &v;
    return nullptr;
  }
  std::string key = "s";
  key += name;
  auto it = index.find(key);
  return it == index.end() ? nullptr : &items[it->second].second;
}

void Dict::set(Run& run, const Value& key, Value value) {
  std::string canonical = key_of(run, key);
  const size_t bytes = canonical.size();
  auto [it, fresh] = index.emplace(std::move(canonical), static_cast<uint32_t>(items.size()));
  if (!fresh) {
    items[it->second].second = std::move(value);
    return;
  }
  run.charge(2 * sizeof(Value) + 96 + bytes);
  items.emplace_back(key, std::move(value));
}

int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

// ---- iteration ----

Iter::Iter(Run& run, Value source) : run_(run), source_(std::move(source)) {
  switch (source_.kind) {
    case Kind::string: case Kind::list: case Kind::tuple: case Kind::dict: case Kind::view:
    case Kind::range: case Kind::generator: return;
    case Kind::undefined:
      return;
    default: run.error("'", type_name(source_), "' object is not iterable");
  }
}

bool Iter::next(Value& out) {
  run_.step();
  switch (source_.kind) {
    case Kind::string: {
      const std::string& t = source_.s->text;
      if (at_ >= t.size()) return false;
      const size_t n = char_bytes(t, at_);
      out = substring(run_, *source_.s, at_, at_ + n);
      at_ += n;
      return true;
    }
    case Kind::list:
    case Kind::tuple: {
      const auto& items = source_.as<List>().items;
      if (at_ >= items.size()) return false;
      out = items[at_++];
      return true;
    }
    case Kind::dict: {
      const auto& items = source_.as<Dict>().items;
      if (at_ >= items.size()) return false;
      out = items[at_++].first;
      return true;
    }
    case Kind::view: {
      const View& view = source_.as<View>();
      const auto& items = view.dict->items;
      if (at_ >= items.size()) return false;
      const auto& [k, v] = items[at_++];
      out = view.what == View::What::keys     ? k
            : view.what == View::What::values ? v
                                              : run_.list({k, v}, Kind::tuple);
      return true;
    }
    case Kind::range: {
      const Range& r = source_.as<Range>();
      if (static_cast<int64_t>(at_) >= r.size()) return false;
      out = Value::integer(r.start + static_cast<int64_t>(at_++) * r.step);
      return true;
    }
    case Kind::generator: {
      Deeper deeper(run_);
      return source_.as<Generator>().next(out);
    }
    default: return false;
  }
}

std::vector<Value> to_vector(Run& run, const Value& v) {
  if (v.is_sequence()) {
    run.step(v.as<List>().items.size());
    return v.as<List>().items;
  }
  std::vector<Value> out;
  Iter it(run, v);
  Value item;
  while (it.next(item)) {
    if (out.size() * sizeof(Value) > run.max_live)
      run.error("a list of more than ", out.size(), " items (max_output)");
    out.push_back(item);
  }
  return out;
}

int64_t length(Run& run, const Value& v) {
  switch (v.kind) {
    case Kind::string:
      run.work(v.s->text.size());
      return static_cast<int64_t>(count_chars(v.text()));
    case Kind::list:
    case Kind::tuple: return static_cast<int64_t>(v.as<List>().items.size());
    case Kind::dict: return static_cast<int64_t>(v.as<Dict>().items.size());
    case Kind::view: return static_cast<int64_t>(v.as<View>().dict->items.size());
    case Kind::range: return v.as<Range>().size();
    case Kind::undefined:
      return 0;
    default: run.error("object of type '", type_name(v), "' has no len()");
  }
}

// ---- truth, equality, order ----

bool truth(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return v.b;
    case Kind::integer: return v.i != 0;
    case Kind::real: return v.d != 0;
    case Kind::string: return !v.s->text.empty();
    case Kind::list:
    case Kind::tuple: return !v.as<List>().items.empty();
    case Kind::dict: return !v.as<Dict>().items.empty();
    case Kind::view: return !v.as<View>().dict->items.empty();
    case Kind::range: return v.as<Range>().size() != 0;
    default: return true;
  }
}

namespace {

// Exact, as Python compares an int with a float. 2: unordered.
int order_numbers(const Value& a, const Value& b) {
  if (a.is_int() && b.is_int())
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  const double x = a.as_real(), y = b.as_real();
  if (std::isnan(x) || std::isnan(y)) return 2;
  if (x != y || !(a.is_int() || b.is_int()) || std::fabs(x) >= 0x1p126)
    return x < y ? -1 : x > y;
  // The integer may have been rounded: compare as integers when the float is one.
  const Value& f = a.is_int() ? b : a;
  const Int whole = static_cast<Int>(f.d);
  const Int other = a.is_int() ? a.as_int() : b.as_int();
  const int c = other < whole ? -1 : other > whole;
  return a.is_int() ? c : -c;
}

}  // namespace

bool equal(Run& run, const Value& a, const Value& b) {
  run.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string:
      run.work(a.s->text.size());
      return a.s->text == b.s->text;
    case Kind::list:
    case Kind::tuple: {
      if (a.o == b.o) return true;
      Deeper deeper(run);
      const auto &x = a.as<List>().items, &y = b.as<List>().items;
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(run, x[i], y[i])) return false;
      return true;
    }
    case Kind::dict: {
      if (a.o == b.o) return true;
      Deeper deeper(run);
      const auto &x = a.as<Dict>(), &y = b.as<Dict>();
      if (x.items.size() != y.items.size()) return false;
      for (const auto& [k, v] : x.items) {
        const Value* w = y.find(run, k);
        if (!w || !equal(run, v, *w)) return false;
      }
      return true;
    }
    case Kind::view: {
      const auto &x = a.as<View>(), &y = b.as<View>();
      if (x.what != y.what || x.what == View::What::values) return a.o == b.o;
      if (x.dict->items.size() != y.dict->items.size()) return false;
      Deeper deeper(run);
      for (const auto& [k, v] : x.dict->items) {
        const Value* w = y.dict->find(run, k);
        if (!w || (x.what == View::What::items && !equal(run, v, *w))) return false;
      }
      return true;
    }
    case Kind::range: {
      const auto &x = a.as<Range>(), &y = b.as<Range>();
      const int64_t n = x.size();
      return n == y.size() && (n == 0 || (x.start == y.start && (n == 1 || x.step == y.step)));
    }
    case Kind::function: return a.i == b.i;
    default: return a.o == b.o;
  }
}

int order(Run& run, const Value& a, const Value& b, const char* op) {
  run.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is(Kind::undefined)) raise_undefined(run, a);
  if (b.is(Kind::undefined)) raise_undefined(run, b);
  if (a.is(Kind::string) && b.is(Kind::string)) {
    run.work(std::min(a.s->text.size(), b.s->text.size()));
    // UTF-8 sorts as its code points do.
    const int c = a.s->text.compare(b.s->text);
    return c < 0 ? -1 : c > 0;
  }
  if (a.is_sequence() && a.kind == b.kind) {
    Deeper deeper(run);
    const auto &x = a.as<List>().items, &y = b.as<List>().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(run, x[i], y[i])) return order(run, x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  run.error("'", op, "' not supported between instances of '", type_name(a), "' and '",
            type_name(b), "'");
}

bool contains(Run& run, const Value& item, const Value& container) {
  switch (container.kind) {
    case Kind::string:
      if (item.is(Kind::undefined)) raise_undefined(run, item);
      if (!item.is(Kind::string))
        run.error("'in <string>' requires string as left operand, not ", type_name(item));
      run.work(container.s->text.size());
      return find_bytes(container.text(), item.text(), 0) != std::string::npos;
    case Kind::dict: return container.as<Dict>().find(run, item) != nullptr;
    case Kind::view:
      if (container.as<View>().what == View::What::keys)
        return container.as<View>().dict->find(run, item) != nullptr;
      break;
    default: break;
  }
  Iter it(run, container);
  Value x;
  while (it.next(x))
    if (equal(run, x, item)) return true;
  return false;
}

}  // namespace orlop::tmpl
