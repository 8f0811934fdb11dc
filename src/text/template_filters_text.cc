#include <cmath>

#include "text/template_filters.h"
#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

Value cased(Interp& in, const char* who, const Value& v, const Args& args, Case how) {
  Bound(in.run, who, args, {}, 0);
  return change_case(in.run, to_string(in.run, v), how);
}
Value upper(Interp& in, const Value& v, const Args& a) { return cased(in, "upper", v, a, Case::upper); }
Value lower(Interp& in, const Value& v, const Args& a) { return cased(in, "lower", v, a, Case::lower); }
Value capitalize(Interp& in, const Value& v, const Args& a) {
  return cased(in, "capitalize", v, a, Case::capitalize);
}
Value title(Interp& in, const Value& v, const Args& a) {
  return cased(in, "title", v, a, Case::title_words);
}

Value trim(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "trim", args, {"chars"}, 0);
  return strip(in.run, to_string(in.run, v), a.text(0), Side::both);
}

Value replace_filter(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "replace", args, {"old", "new", "count"}, 2);
  const Value from = to_string(in.run, *a[0]), to = to_string(in.run, *a[1]);
  const int64_t count = a[2] && !a[2]->is(Kind::none) ? a.integer(2, -1) : -1;
  return replace(in.run, to_string(in.run, v), *from.s, *to.s, count);
}

Value indent(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "indent", args, {"width", "first", "blank"}, 0);
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (!v.is(Kind::string)) run.error("indent: must be str, not ", type_name(v));
  const Value by = a[0] && a[0]->is(Kind::string) ? *a[0] : repeat(run, run.string(" "), a.integer(0, 4));
  Builder text(run);
  text.add(*v.s);
  text.trusted("\n");
  const Value lines = split_lines(run, text.finish(), false);
  Builder out(run);
  if (a.flag(1, false)) out.add(*by.s);
  bool first = true;
  for (const Value& line : lines.as<List>().items) {
    if (!first) {
      out.trusted("\n");
      if (a.flag(2, false) || !line.s->text.empty()) out.add(*by.s);
    }
    first = false;
    out.add(*line.s);
  }
  return out.finish();
}

Value safe(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "safe", args, {}, 0);
  Value s = to_string(in.run, v);
  s.markup = true;
  return s;
}
Value escape(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "escape", args, {}, 0);
  if (v.markup) return v;
  Value s = escape_html(in.run, to_string(in.run, v));
  s.markup = true;
  return s;
}
Value forceescape(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "forceescape", args, {}, 0);
  Value s = escape_html(in.run, to_string(in.run, v));
  s.markup = true;
  return s;
}
Value string(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "string", args, {}, 0);
  return to_string(in.run, v);
}
Value center(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "center", args, {"width"}, 0);
  Args width;
  width.plain.push_back(a[0] ? *a[0] : Value::integer(80));
  return in.method(to_string(in.run, v), method_id("center"), width);
}
Value format(Interp& in, const Value& v, const Args& args) {
  if (!args.named.empty()) fail(Status::unsupported, "chat template, line ", in.run.line,
                                ": format with named values is not supported");
  return in.binary(Op::mod, to_string(in.run, v), in.run.list(args.plain, Kind::tuple));
}
Value integer(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "int", args, {"default", "base"}, 0);
  return to_int(in.run, v, a[0], a.integer(1, 10));
}
Value real(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "float", args, {"default"}, 0);
  return to_real(in.run, v, a[0]);
}
Value round(Interp& in, const Value& v, const Args& args) {
  const Bound a(in.run, "round", args, {"precision", "method"}, 0);
  const Str* how = a.text(1);
  return round_number(in.run, v, a.integer(0, 0), how ? std::string_view(how->text) : "common");
}
Value absolute(Interp& in, const Value& v, const Args& args) {
  Bound(in.run, "abs", args, {}, 0);
  if (v.is(Kind::real)) return Value::real(std::fabs(v.d));
  if (!v.is_int()) in.run.error("bad operand type for abs(): '", type_name(v), "'");
  return v.as_int() < 0 ? in.binary(Op::sub, Value::integer(0), v) : Value::integer(v.as_int());
}

}  // namespace

const FilterEntry text_filters[] = {
    {"upper", upper},         {"lower", lower},   {"capitalize", capitalize},
    {"title", title},         {"trim", trim},     {"replace", replace_filter},
    {"indent", indent},       {"safe", safe},     {"escape", escape},
    {"e", escape},            {"string", string}, {"forceescape", forceescape},
    {"center", center},       {"format", format}, {"int", integer},
    {"float", real},          {"round", round},   {"abs", absolute},
    {"tojson", to_json},      {nullptr, nullptr},
};

}  // namespace orlop::tmpl
