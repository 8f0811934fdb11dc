// Names of filters and tests, the tests themselves, and how arguments meet parameters.
#include "text/template_filters.h"

#include <algorithm>
#include <iterator>

#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

enum class T : int {
  odd, even, divisibleby, defined, undefined, none, boolean, is_false, is_true, integer, real,
  lower, upper, string, mapping, number, sequence, iterable, callable, sameas, escaped, in,
  eq, ne, gt, ge, lt, le, filter, test,
};
struct TestEntry {
  const char* name;
  T test;
  size_t arguments;
};
constexpr TestEntry tests[] = {
    {"odd", T::odd, 0},           {"even", T::even, 0},         {"divisibleby", T::divisibleby, 1},
    {"defined", T::defined, 0},   {"undefined", T::undefined, 0}, {"none", T::none, 0},
    {"boolean", T::boolean, 0},   {"false", T::is_false, 0},    {"true", T::is_true, 0},
    {"integer", T::integer, 0},   {"float", T::real, 0},        {"lower", T::lower, 0},
    {"upper", T::upper, 0},       {"string", T::string, 0},     {"mapping", T::mapping, 0},
    {"number", T::number, 0},     {"sequence", T::sequence, 0}, {"iterable", T::iterable, 0},
    {"callable", T::callable, 0}, {"sameas", T::sameas, 1},     {"escaped", T::escaped, 0},
    {"in", T::in, 1},             {"==", T::eq, 1},             {"eq", T::eq, 1},
    {"equalto", T::eq, 1},        {"!=", T::ne, 1},             {"ne", T::ne, 1},
    {">", T::gt, 1},              {"gt", T::gt, 1},             {"greaterthan", T::gt, 1},
    {"ge", T::ge, 1},             {">=", T::ge, 1},             {"<", T::lt, 1},
    {"lt", T::lt, 1},             {"lessthan", T::lt, 1},       {"<=", T::le, 1},
    {"le", T::le, 1},             {"filter", T::filter, 0},     {"test", T::test, 0},
};

size_t count(const FilterEntry* entries) {
  size_t n = 0;
  while (entries[n].name) ++n;
  return n;
}

}  // namespace

int filter_id(std::string_view name) {
  int id = 0;
  for (const FilterEntry* table : {text_filters, sequence_filters})
    for (const FilterEntry* f = table; f->name; ++f, ++id)
      if (name == f->name) return id;
  return -1;
}

int test_id(std::string_view name) {
  for (size_t i = 0; i < std::size(tests); ++i)
    if (name == tests[i].name) return static_cast<int>(i);
  return -1;
}

Value Interp::filter(int id, const Value& input, const Args& args) {
  Deeper deeper(run);
  run.step();
  const size_t texts = count(text_filters), i = static_cast<size_t>(id);
  const FilterEntry& f = i < texts ? text_filters[i] : sequence_filters[i - texts];
  return f.fn(*this, input, args);
}

bool Interp::test(int id, const Value& v, const Args& args) {
  run.step();
  const TestEntry& entry = tests[id];
  if (!args.named.empty() || args.plain.size() != entry.arguments)
    run.error("the test '", entry.name, "' takes ", entry.arguments, " argument(s)");
  const Value* other = args.plain.empty() ? nullptr : &args.plain[0];
  const auto remainder = [&](const Value& by) {
    const Value r = binary(Op::mod, v, by);
    return r.is_number() && !truth(r);
  };
  switch (entry.test) {
    case T::odd: {
      const Value r = binary(Op::mod, v, Value::integer(2));
      return equal(run, r, Value::integer(1));
    }
    case T::even: return remainder(Value::integer(2));
    case T::divisibleby: return remainder(*other);
    case T::defined: return !v.is(Kind::undefined);
    case T::undefined: return v.is(Kind::undefined);
    case T::none: return v.is(Kind::none);
    case T::boolean: return v.is(Kind::boolean);
    case T::is_false: return v.is(Kind::boolean) && !v.b;
    case T::is_true: return v.is(Kind::boolean) && v.b;
    case T::integer: return v.is(Kind::integer);
    case T::real: return v.is(Kind::real);
    case T::lower: return all_chars(run, to_string(run, v).text(), CharTest::lower);
    case T::upper: return all_chars(run, to_string(run, v).text(), CharTest::upper);
    case T::string: return v.is(Kind::string);
    case T::mapping: return v.is(Kind::dict);
    case T::number: return v.is_number();
    case T::sequence:
      return v.is(Kind::string) || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::range) ||
             v.is(Kind::undefined);
    case T::iterable:
      return v.is(Kind::string) || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::range) ||
             v.is(Kind::view) || v.is(Kind::generator) || v.is(Kind::undefined) ||
             v.is(Kind::loop);
    case T::callable:
      return v.is(Kind::macro) || v.is(Kind::method) || v.is(Kind::function) ||
             v.is(Kind::joiner) || v.is(Kind::loop) || v.is(Kind::undefined);
    case T::sameas:
      if (v.kind != other->kind) return false;
      if (v.is(Kind::none)) return true;
      if (v.is(Kind::boolean)) return v.b == other->b;
      if (v.is(Kind::integer) || v.is(Kind::real) || v.is(Kind::string) || v.is(Kind::undefined))
        fail(Status::unsupported, "chat template, line ", run.line,
             ": sameas on numbers and strings is not supported");
      return v.o == other->o;
    case T::escaped: return v.markup;
    case T::in: return contains(run, v, *other);
    case T::eq: return compare(Op::eq, v, *other);
    case T::ne: return compare(Op::ne, v, *other);
    case T::gt: return compare(Op::gt, v, *other);
    case T::ge: return compare(Op::ge, v, *other);
    case T::lt: return compare(Op::lt, v, *other);
    case T::le: return compare(Op::le, v, *other);
    case T::filter: return v.is(Kind::string) && filter_id(v.text()) >= 0;
    case T::test: return v.is(Kind::string) && test_id(v.text()) >= 0;
  }
  return false;
}

Bound::Bound(Run& run, const char* who, const Args& args, std::initializer_list<const char*> names,
             size_t required)
    : run_(run), who_(who), values_(names.size()) {
  if (args.plain.size() > names.size())
    run.error(who, " takes at most ", names.size(), " argument(s), ", args.plain.size(), " given");
  for (size_t i = 0; i < args.plain.size(); ++i) values_[i] = &args.plain[i];
  for (const auto& given : args.named) {
    const std::string& name = given.first;
    const auto at = std::find_if(names.begin(), names.end(),
                                 [&](const char* n) { return name == n; });
    if (at == names.end()) run.error(who, " got an unexpected keyword argument '", name, "'");
    const Value*& slot = values_[static_cast<size_t>(at - names.begin())];
    if (slot) run.error(who, " got multiple values for argument '", name, "'");
    slot = &given.second;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) run.error(who, " misses the argument '", names.begin()[i], "'");
}

const Str* Bound::text(size_t i) const {
  const Value* v = values_[i];
  if (!v || v->is(Kind::none)) return nullptr;
  if (v->is(Kind::undefined)) raise_undefined(run_, *v);
  if (!v->is(Kind::string)) run_.error(who_, ": must be str, not ", type_name(*v));
  return v->s.get();
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  const Value* v = values_[i];
  if (!v) return otherwise;
  if (v->is(Kind::undefined)) raise_undefined(run_, *v);
  if (!v->is_int()) run_.error(who_, ": an integer is required, not ", type_name(*v));
  constexpr Int big = Int{1} << 62;
  return static_cast<int64_t>(std::clamp(v->as_int(), -big, big));
}

}  // namespace orlop::tmpl
