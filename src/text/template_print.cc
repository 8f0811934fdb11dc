// How values are written: Python's str() and repr().
#include <charconv>
#include <cmath>

#include "text/template_string.h"
#include "text/template_value.h"

namespace orlop::tmpl {

std::string int_text(Int i) {
  if (i == 0) return "0";
  const bool negative = i < 0;
  char buffer[48];
  char* at = buffer + sizeof buffer;
  while (i != 0) {
    const int digit = static_cast<int>(i % 10);
    *--at = static_cast<char>('0' + (digit < 0 ? -digit : digit));
    i /= 10;
  }
  if (negative) *--at = '-';
  return std::string(at, buffer + sizeof buffer);
}

// The shortest digits that read back as d, laid out as Python's repr lays them out.
std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const char* from = text.data() + e + 1;
  if (*from == '+') ++from;
  std::from_chars(from, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = exponent < 0 ? -exponent : exponent;
    if (magnitude < 10) out += '0';
    return out + std::to_string(magnitude);
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

namespace {

void repr_string(Run& run, Builder& out, const Str& s) {
  const std::string& t = s.text;
  const bool use_double =
      t.find('\'') != std::string::npos && t.find('"') == std::string::npos;
  const char quote = use_double ? '"' : '\'';
  out.trusted(std::string_view(&quote, 1));
  MarkCursor marks(s);
  size_t from = 0;
  run.step(t.size() >> 4);
  for (size_t i = 0; i < t.size();) {
    const size_t n = char_bytes(t, i);
    const uint32_t c = char_at(t, i);
    std::string to;
    char hex[16];
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      to = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      to = "\\n";
    } else if (c == '\r') {
      to = "\\r";
    } else if (c == '\t') {
      to = "\\t";
    } else if (!is_printable(c)) {
      std::snprintf(hex, sizeof hex, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x",
                    static_cast<unsigned>(c));
      to = hex;
    }
    if (!to.empty()) {
      out.add(s, from, i);
      out.add(to, marks.untrusted(i));
      from = i + n;
    }
    i += n;
  }
  out.add(s, from, t.size());
  out.trusted(std::string_view(&quote, 1));
}

void repr_items(Run& run, Builder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out.trusted(", ");
    write_repr(run, out, items[i]);
  }
}

void repr_dict(Run& run, Builder& out, const Dict& d) {
  out.trusted("{");
  for (size_t i = 0; i < d.items.size(); ++i) {
    if (i) out.trusted(", ");
    write_repr(run, out, d.items[i].first);
    out.trusted(": ");
    write_repr(run, out, d.items[i].second);
  }
  out.trusted("}");
}

}  // namespace

void write_repr(Run& run, Builder& out, const Value& v) {
  Deeper deeper(run);
  run.step();
  switch (v.kind) {
    case Kind::undefined:
      return out.trusted("Undefined");
    case Kind::none: return out.trusted("None");
    case Kind::boolean: return out.trusted(v.b ? "True" : "False");
    case Kind::integer: return out.trusted(int_text(v.i));
    case Kind::real: return out.trusted(real_text(v.d));
    case Kind::string:
      if (v.markup) fail(Status::unsupported, "chat template, line ", run.line, ": repr of a safe string");
      return repr_string(run, out, *v.s);
    case Kind::list:
      out.trusted("[");
      repr_items(run, out, v.as<List>().items);
      return out.trusted("]");
    case Kind::tuple:
      out.trusted("(");
      repr_items(run, out, v.as<List>().items);
      return out.trusted(v.as<List>().items.size() == 1 ? ",)" : ")");
    case Kind::dict: return repr_dict(run, out, v.as<Dict>());
    case Kind::space:
      out.trusted("<Namespace ");
      repr_dict(run, out, v.as<Dict>());
      return out.trusted(">");
    case Kind::view: {
      const View& view = v.as<View>();
      out.trusted(view.what == View::What::keys     ? "dict_keys(["
                  : view.what == View::What::values ? "dict_values(["
                                                    : "dict_items([");
      repr_items(run, out, to_vector(run, v));
      return out.trusted("])");
    }
    case Kind::range: {
      const Range& r = v.as<Range>();
      out.trusted("range(" + std::to_string(r.start) + ", " + std::to_string(r.stop));
      if (r.step != 1) out.trusted(", " + std::to_string(r.step));
      return out.trusted(")");
    }
    default:
      fail(Status::unsupported, "chat template, line ", run.line, ": printing a ", type_name(v));
  }
}

void write_str(Run& run, Builder& out, const Value& v) {
  if (v.is(Kind::string)) return out.add(*v.s);
  if (v.is(Kind::undefined)) return;
  write_repr(run, out, v);
}

Value to_string(Run& run, const Value& v) {
  if (v.is(Kind::string)) return v;
  Builder out(run);
  write_str(run, out, v);
  return out.finish();
}

}  // namespace orlop::tmpl
