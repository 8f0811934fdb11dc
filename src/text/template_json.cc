// The tojson filter: Python's json.dumps, with Hugging Face's defaults (no ASCII escapes, no HTML
// escapes, keys in their order).
#include <algorithm>
#include <cmath>

#include "text/template_interp.h"
#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

struct Writer {
  Run& run;
  Builder out;
  bool ascii = false, sort = false, pretty = false;
  Value indent, item_separator, key_separator;

  void quoted(const Str& s) {
    const std::string& t = s.text;
    out.trusted("\"");
    MarkCursor marks(s);
    size_t from = 0;
    run.step(t.size() >> 5);
    for (size_t i = 0; i < t.size();) {
      const unsigned char c = static_cast<unsigned char>(t[i]);
      size_t n = 1;
      char escape[16] = "";
      switch (c) {
        case '"': std::snprintf(escape, sizeof escape, "\\\""); break;
        case '\\': std::snprintf(escape, sizeof escape, "\\\\"); break;
        case '\n': std::snprintf(escape, sizeof escape, "\\n"); break;
        case '\r': std::snprintf(escape, sizeof escape, "\\r"); break;
        case '\t': std::snprintf(escape, sizeof escape, "\\t"); break;
        case '\b': std::snprintf(escape, sizeof escape, "\\b"); break;
        case '\f': std::snprintf(escape, sizeof escape, "\\f"); break;
        default:
          if (c < 0x20) {
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
          } else if (c >= 0x80) {
            n = char_bytes(t, i);
            if (ascii) {
              const uint32_t cp = char_at(t, i);
              if (cp < 0x10000)
                std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(cp));
              else
                std::snprintf(escape, sizeof escape, "\\u%04x\\u%04x",
                              static_cast<unsigned>(0xd800 + ((cp - 0x10000) >> 10)),
                              static_cast<unsigned>(0xdc00 + ((cp - 0x10000) & 0x3ff)));
            }
          }
      }
      if (escape[0]) {
        out.add(s, from, i);
        out.add(escape, marks.untrusted(i));
        from = i + n;
      }
      i += n;
    }
    out.add(s, from, t.size());
    out.trusted("\"");
  }

  void real(double d) {
    if (std::isnan(d))
      out.trusted("NaN");
    else if (std::isinf(d))
      out.trusted(d < 0 ? "-Infinity" : "Infinity");
    else
      out.trusted(real_text(d));
  }

  void line(size_t level) {
    if (!pretty) return;
    out.trusted("\n");
    for (size_t i = 0; i < level; ++i) out.add(*indent.s);
  }

  void key(const Value& k) {
    switch (k.kind) {
      case Kind::string: return quoted(*k.s);
      case Kind::none: return out.trusted("\"null\"");
      case Kind::boolean: return out.trusted(k.b ? "\"true\"" : "\"false\"");
      case Kind::integer: return out.trusted("\"" + int_text(k.i) + "\"");
      case Kind::real:
        out.trusted("\"");
        real(k.d);
        return out.trusted("\"");
      default:
        run.error("keys must be str, int, float, bool or None, not ", type_name(k));
    }
  }

  void value(const Value& v, size_t level) {
    Deeper deeper(run);
    run.step();
    switch (v.kind) {
      case Kind::none: return out.trusted("null");
      case Kind::boolean: return out.trusted(v.b ? "true" : "false");
      case Kind::integer: return out.trusted(int_text(v.i));
      case Kind::real: return real(v.d);
      case Kind::string: return quoted(*v.s);
      case Kind::list:
      case Kind::tuple: {
        const auto& items = v.as<List>().items;
        if (items.empty()) return out.trusted("[]");
        out.trusted("[");
        for (size_t i = 0; i < items.size(); ++i) {
          if (i) out.add(*item_separator.s);
          line(level + 1);
          value(items[i], level + 1);
        }
        line(level);
        return out.trusted("]");
      }
      case Kind::dict: {
        const auto& items = v.as<Dict>().items;
        if (items.empty()) return out.trusted("{}");
        std::vector<const std::pair<Value, Value>*> order_of;
        for (const auto& item : items) order_of.push_back(&item);
        if (sort) {
          run.step(items.size() * 4);
          std::stable_sort(order_of.begin(), order_of.end(), [&](const auto* a, const auto* b) {
            return order(run, a->first, b->first, "<") == -1;
          });
        }
        out.trusted("{");
        for (size_t i = 0; i < order_of.size(); ++i) {
          if (i) out.add(*item_separator.s);
          line(level + 1);
          key(order_of[i]->first);
          out.add(*key_separator.s);
          value(order_of[i]->second, level + 1);
        }
        line(level);
        return out.trusted("}");
      }
      default: run.error("Object of type ", type_name(v), " is not JSON serializable");
    }
  }
};

}  // namespace

Value to_json(Interp& in, const Value& v, const Args& args) {
  Run& run = in.run;
  const Bound a(run, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  Writer w{run, Builder(run), a.flag(0, false), a.flag(3, false), false, {}, {}, {}};
  if (a[1] && !a[1]->is(Kind::none)) {
    w.pretty = true;
    w.indent = a[1]->is(Kind::string)
                   ? *a[1]
                   : repeat(run, run.string(" "), a.integer(1, 0));
  }
  if (a[2] && !a[2]->is(Kind::none)) {
    const std::vector<Value> two = to_vector(run, *a[2]);
    if (two.size() != 2 || !two[0].is(Kind::string) || !two[1].is(Kind::string))
      run.error("tojson: separators must be two strings");
    w.item_separator = two[0];
    w.key_separator = two[1];
  } else {
    w.item_separator = run.string(w.pretty ? "," : ", ");
    w.key_separator = run.string(": ");
  }
  w.value(v, 0);
  return w.out.finish();
}

}  // namespace orlop::tmpl
