// Numbers as Python computes them, within 128-bit integers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template_interp.h"
#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

[[noreturn]] void too_big(Run& run) {
  fail(Status::unsupported, "chat template, line ", run.line,
       ": an integer beyond 128 bits is not supported");
}

const char* symbol(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::sub: return "-";
    case Op::mul: return "*";
    case Op::div: return "/";
    case Op::floordiv: return "//";
    case Op::mod: return "%";
    case Op::pow: return "**";
    default: return "?";
  }
}

Value power(Run& run, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) run.error("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) too_big(run);
    exponent >>= 1;
    if (exponent && __builtin_mul_overflow(base, base, &base)) too_big(run);
  }
  return Value::integer(result);
}

double python_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double floor_div(double a, double b) {
  const double mod = python_mod(a, b);
  const double div = (a - mod) / b;
  if (div == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(div);
  if (div - whole > 0.5) whole += 1.0;
  return whole;
}

// "%s" and "%d": the two conversions that templates use.
Value percent(Run& run, const Value& format, const Value& operand) {
  const Str& f = *format.s;
  std::vector<Value> values;
  if (operand.is(Kind::tuple))
    values = operand.as<List>().items;
  else
    values.push_back(operand);
  Builder out(run);
  size_t used = 0, from = 0;
  for (size_t i = 0; i < f.text.size(); ++i) {
    if (f.text[i] != '%') continue;
    out.add(f, from, i);
    if (i + 1 >= f.text.size()) run.error("incomplete format");
    const char c = f.text[++i];
    from = i + 1;
    if (c == '%') {
      out.add(f, i, i + 1);
      continue;
    }
    if (c != 's' && c != 'd' && c != 'r')
      fail(Status::unsupported, "chat template, line ", run.line,
           ": a format other than %s, %d, %r and %% is not supported");
    if (used >= values.size()) run.error("not enough arguments for format string");
    const Value& v = values[used++];
    if (c == 's') {
      write_str(run, out, v);
    } else if (c == 'r') {
      write_repr(run, out, v);
    } else {
      if (!v.is_number()) run.error("%d format: a real number is required, not ", type_name(v));
      out.trusted(int_text(to_int(run, v, nullptr, 10).i));
    }
  }
  out.add(f, from, f.text.size());
  if (used < values.size() && !(operand.is(Kind::dict) || operand.is(Kind::list)))
    run.error("not all arguments converted during string formatting");
  return out.finish();
}

// Python's int(text, base); false when it is none.
bool parse_int(Run& run, std::string_view t, int64_t base, Int& out) {
  size_t begin = 0, end = t.size();
  while (begin < end && is_space(static_cast<unsigned char>(t[begin]))) ++begin;
  while (end > begin && is_space(static_cast<unsigned char>(t[end - 1]))) --end;
  t = t.substr(begin, end - begin);
  bool negative = false;
  if (!t.empty() && (t[0] == '+' || t[0] == '-')) {
    negative = t[0] == '-';
    t.remove_prefix(1);
  }
  bool prefix = false;
  if (t.size() > 1 && t[0] == '0') {
    const char x = static_cast<char>(t[1] | 0x20);
    const int64_t named = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
    if (named && (base == named || base == 0)) {
      base = named;
      t.remove_prefix(2);
      prefix = true;
    }
  }
  const bool detect = base == 0;
  if (detect) base = 10;
  Int value = 0;
  bool digit_before = prefix, any = false;
  for (size_t i = 0; i < t.size(); ++i) {
    const char c = t[i];
    if (c == '_') {
      if (!digit_before || i + 1 == t.size()) return false;
      digit_before = false;
      continue;
    }
    int64_t d = c >= '0' && c <= '9' ? c - '0' : 99;
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') d = (c | 0x20) - 'a' + 10;
    if (d >= base) return false;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{d}, &value))
      too_big(run);
    digit_before = any = true;
  }
  if (!any) return false;
  if (detect && t[0] == '0' && value != 0) return false;
  out = negative ? -value : value;
  return true;
}

bool parse_real(std::string_view t, double& out) {
  size_t begin = 0, end = t.size();
  while (begin < end && is_space(static_cast<unsigned char>(t[begin]))) ++begin;
  while (end > begin && is_space(static_cast<unsigned char>(t[end - 1]))) --end;
  std::string clean;
  for (size_t i = begin; i < end; ++i) {
    if (t[i] == '_') {
      const bool between = i > begin && i + 1 < end && t[i - 1] >= '0' && t[i - 1] <= '9' &&
                           t[i + 1] >= '0' && t[i + 1] <= '9';
      if (!between) return false;
      continue;
    }
    const char c = t[i];
    clean += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  }
  std::string_view s = clean;
  bool negative = false;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  if (s == "inf" || s == "infinity") {
    out = HUGE_VAL;
  } else if (s == "nan") {
    out = std::nan("");
  } else {
    if (s.empty() || !((s[0] >= '0' && s[0] <= '9') || s[0] == '.')) return false;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), out);
    if (r.ptr != s.data() + s.size() || r.ec == std::errc::invalid_argument) return false;
    if (r.ec == std::errc::result_out_of_range) {
      const size_t e = s.find('e');
      out = e != std::string_view::npos && s.substr(e + 1, 1) == "-" ? 0.0 : HUGE_VAL;
    }
  }
  if (negative) out = -out;
  return true;
}

// Truncated; error when it is no finite number.
Int whole(Run& run, double d) {
  if (!(std::fabs(d) < 0x1p126)) too_big(run);
  return static_cast<Int>(d);
}

}  // namespace

Value arithmetic(Run& run, Op op, const Value& a, const Value& b) {
  if (op == Op::mod && a.is(Kind::string)) return percent(run, a, b);
  if (!a.is_number() || !b.is_number())
    run.error("unsupported operand type(s) for ", symbol(op), ": '", type_name(a), "' and '",
              type_name(b), "'");
  if (a.is_int() && b.is_int()) {
    const Int x = a.as_int(), y = b.as_int();
    Int r = 0;
    switch (op) {
      case Op::add:
        if (__builtin_add_overflow(x, y, &r)) too_big(run);
        return Value::integer(r);
      case Op::sub:
        if (__builtin_sub_overflow(x, y, &r)) too_big(run);
        return Value::integer(r);
      case Op::mul:
        if (__builtin_mul_overflow(x, y, &r)) too_big(run);
        return Value::integer(r);
      case Op::div:
        if (y == 0) run.error("division by zero");
        return Value::real(static_cast<double>(x) / static_cast<double>(y));
      case Op::floordiv:
      case Op::mod: {
        if (y == 0) run.error("integer division or modulo by zero");
        if (y == -1) {  // the smallest integer has no opposite
          if (op == Op::mod) return Value::integer(0);
          if (__builtin_sub_overflow(Int{0}, x, &r)) too_big(run);
          return Value::integer(r);
        }
        Int q = x / y, m = x % y;
        if (m != 0 && (m < 0) != (y < 0)) {
          m += y;
          --q;
        }
        return Value::integer(op == Op::mod ? m : q);
      }
      default: return power(run, x, y);
    }
  }
  const double x = a.as_real(), y = b.as_real();
  switch (op) {
    case Op::add: return Value::real(x + y);
    case Op::sub: return Value::real(x - y);
    case Op::mul: return Value::real(x * y);
    case Op::div:
      if (y == 0) run.error("float division by zero");
      return Value::real(x / y);
    case Op::floordiv:
      if (y == 0) run.error("float floor division by zero");
      return Value::real(floor_div(x, y));
    case Op::mod:
      if (y == 0) run.error("float modulo");
      return Value::real(python_mod(x, y));
    default: {
      if (x == 0 && y < 0) run.error("0.0 cannot be raised to a negative power");
      if (x < 0 && y != std::floor(y))
        fail(Status::unsupported, "chat template, line ", run.line,
             ": a complex number is not supported");
      const double r = std::pow(x, y);
      if (std::isinf(r) && std::isfinite(x) && std::isfinite(y))
        run.error("numerical result out of range");
      return Value::real(r);
    }
  }
}

Value to_int(Run& run, const Value& v, const Value* otherwise, int64_t base) {
  const auto fallback = [&]() { return otherwise ? *otherwise : Value::integer(0); };
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (v.is_int()) return Value::integer(v.as_int());
  if (v.is(Kind::real)) {
    if (std::isnan(v.d)) return fallback();
    if (std::isinf(v.d)) run.error("cannot convert float infinity to integer");
    return Value::integer(whole(run, v.d));
  }
  if (!v.is(Kind::string)) return fallback();
  run.work(v.s->text.size());
  if (base != 0 && (base < 2 || base > 36)) base = 99;
  Int i = 0;
  if (base != 99 && parse_int(run, v.text(), base, i)) return Value::integer(i);
  double d = 0;
  if (!parse_real(v.text(), d) || !std::isfinite(d)) return fallback();
  return Value::integer(whole(run, d));
}

Value to_real(Run& run, const Value& v, const Value* otherwise) {
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (v.is_number()) return Value::real(v.as_real());
  double d = 0;
  if (v.is(Kind::string)) {
    run.work(v.s->text.size());
    if (parse_real(v.text(), d)) return Value::real(d);
  }
  return otherwise ? *otherwise : Value::real(0);
}

Value round_number(Run& run, const Value& v, int64_t digits, std::string_view how) {
  if (how != "common" && how != "ceil" && how != "floor")
    run.error("round: the method must be common, ceil or floor");
  if (v.is(Kind::undefined)) raise_undefined(run, v);
  if (!v.is_number()) run.error("type ", type_name(v), " cannot be rounded");
  digits = std::clamp<int64_t>(digits, -400, 400);
  if (how != "common") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double x = v.as_real() * scale;
    if (!std::isfinite(x)) run.error("a number that is not finite cannot be rounded");
    return Value::real((how == "ceil" ? std::ceil(x) : std::floor(x)) / scale);
  }
  if (v.is_int()) {
    Int x = v.as_int();
    if (digits >= 0) return Value::integer(x);
    if (digits < -37) return Value::integer(0);
    Int scale = 1;
    for (int64_t i = 0; i < -digits; ++i) scale *= 10;
    Int q = x / scale, r = x % scale;
    const Int twice = (r < 0 ? -r : r);
    const Int sign = x < 0 ? -1 : 1;
    if (twice > scale - twice || (twice == scale - twice && (q & 1))) q += sign;
    Int out = 0;
    if (__builtin_mul_overflow(q, scale, &out)) too_big(run);
    return Value::integer(out);
  }
  if (!std::isfinite(v.d) || digits > 330) return v;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    if (!std::isfinite(scale)) return Value::real(std::copysign(0.0, v.d));
    return Value::real(std::nearbyint(v.d / scale) * scale);
  }
  // Written with that many digits, correctly rounded, and read back.
  char buffer[800];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v.d, std::chars_format::fixed,
                                 static_cast<int>(digits));
  double out = v.d;
  if (end.ec == std::errc()) std::from_chars(buffer, end.ptr, out);
  return Value::real(out);
}

}  // namespace orlop::tmpl
