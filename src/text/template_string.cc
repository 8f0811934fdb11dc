#include "text/template_string.h"

#include <algorithm>
#include <cstring>

namespace orlop::tmpl {

uint32_t char_at(std::string_view t, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(t[at + i]); };
  const size_t n = char_bytes(t, at);
  switch (n) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1fu) << 6 | (byte(1) & 0x3fu);
    case 3: return (byte(0) & 0xfu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    default:
      return (byte(0) & 7u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 |
             (byte(3) & 0x3fu);
  }
}

size_t count_chars(std::string_view t) {
  return static_cast<size_t>(std::count_if(
      t.begin(), t.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

size_t byte_of_char(std::string_view t, size_t chars) {
  size_t at = 0;
  while (chars-- && at < t.size()) at += char_bytes(t, at);
  return at;
}

void append_utf8(std::string& out, uint32_t cp) {
  const auto put = [&](uint32_t v) { out += static_cast<char>(v); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xc0 | cp >> 6);
    put(0x80 | (cp & 0x3f));
  } else if (cp < 0x10000) {
    put(0xe0 | cp >> 12);
    put(0x80 | (cp >> 6 & 0x3f));
    put(0x80 | (cp & 0x3f));
  } else {
    put(0xf0 | cp >> 18);
    put(0x80 | (cp >> 12 & 0x3f));
    put(0x80 | (cp >> 6 & 0x3f));
    put(0x80 | (cp & 0x3f));
  }
}

size_t bad_utf8(std::string_view t) {
  for (size_t i = 0; i < t.size();) {
    const unsigned char c = static_cast<unsigned char>(t[i]);
    if (c < 0x80) {
      ++i;
      continue;
    }
    const size_t n = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (n == 0 || n > t.size() - i) return i;
    for (size_t k = 1; k < n; ++k)
      if ((static_cast<unsigned char>(t[i + k]) & 0xc0) != 0x80) return i;
    const uint32_t cp = char_at(t, i);
    if ((n == 3 && (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))) ||
        (n == 4 && (cp < 0x10000 || cp > 0x10ffff)))
      return i;
    i += n;
  }
  return std::string::npos;
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

namespace {

// Knuth, Morris, Pratt: for the sizes where comparing at every place could be quadratic.
size_t find_linear(std::string_view hay, std::string_view needle, size_t from) {
  std::vector<size_t> back(needle.size(), 0);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k && needle[i] != needle[k]) k = back[k - 1];
    if (needle[i] == needle[k]) ++k;
    back[i] = k;
  }
  for (size_t i = from, k = 0; i < hay.size(); ++i) {
    while (k && hay[i] != needle[k]) k = back[k - 1];
    if (hay[i] == needle[k]) ++k;
    if (k == needle.size()) return i + 1 - k;
  }
  return std::string::npos;
}

}  // namespace

size_t find_bytes(std::string_view hay, std::string_view needle, size_t from) {
  if (from > hay.size()) return std::string::npos;
  const size_t rest = hay.size() - from;
  if (needle.size() > rest) return std::string::npos;
  if (needle.size() <= 64 || rest <= 4096) return hay.find(needle, from);
  // A short look first, so that repeated finds of near matches do not rebuild the table each time.
  const size_t near = std::string_view(hay.substr(from, needle.size() + 64)).find(needle);
  if (near != std::string::npos) return from + near;
  return find_linear(hay, needle, from);
}

size_t rfind_bytes(std::string_view hay, std::string_view needle) {
  if (needle.size() <= 64 || hay.size() <= 4096) return hay.rfind(needle);
  const std::string back(hay.rbegin(), hay.rend()), word(needle.rbegin(), needle.rend());
  const size_t at = find_bytes(back, word, 0);
  return at == std::string::npos ? at : hay.size() - at - needle.size();
}

Value strip(Run& run, const Value& v, const Str* chars, Side side) {
  const std::string& t = v.s->text;
  run.work(t.size());
  std::vector<uint32_t> set;
  if (chars) {
    for (size_t i = 0; i < chars->text.size(); i += char_bytes(chars->text, i))
      set.push_back(char_at(chars->text, i));
    std::sort(set.begin(), set.end());
    run.work(chars->text.size());
  }
  const auto drop = [&](uint32_t c) {
    return chars ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
  };
  size_t begin = 0, end = t.size();
  if (side != Side::right)
    while (begin < end && drop(char_at(t, begin))) begin += char_bytes(t, begin);
  if (side != Side::left)
    while (begin < end) {
      size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(t[last]) & 0xc0) == 0x80) --last;
      if (!drop(char_at(t, last))) break;
      end = last;
    }
  if (begin == 0 && end == t.size()) return Value::string(v.s);
  return substring(run, *v.s, begin, end);
}

Value split(Run& run, const Value& v, const Str* sep, int64_t max, bool from_right) {
  const std::string& t = v.s->text;
  run.work(t.size());
  std::vector<std::pair<size_t, size_t>> parts;
  const auto full = [&] { return max >= 0 && static_cast<int64_t>(parts.size()) >= max; };
  const auto part = [&](size_t begin, size_t end) {
    run.step();
    parts.emplace_back(begin, end);
  };
  const auto prev = [&](size_t end) {
    size_t i = end - 1;
    while (i && (static_cast<unsigned char>(t[i]) & 0xc0) == 0x80) --i;
    return i;
  };
  if (sep) {
    const std::string& s = sep->text;
    if (s.empty()) run.error("empty separator");
    if (!from_right) {
      size_t at = 0;
      while (!full()) {
        const size_t hit = find_bytes(t, s, at);
        if (hit == std::string::npos) break;
        part(at, hit);
        at = hit + s.size();
      }
      part(at, t.size());
    } else {
      size_t end = t.size();
      while (!full()) {
        const size_t hit = rfind_bytes(std::string_view(t).substr(0, end), s);
        if (hit == std::string::npos) break;
        if (s.size() > 64) run.step(end >> 6);  // this search copies
        part(hit + s.size(), end);
        end = hit;
      }
      part(0, end);
    }
  } else if (!from_right) {
    size_t at = 0;
    for (;;) {
      while (at < t.size() && is_space(char_at(t, at))) at += char_bytes(t, at);
      if (at >= t.size()) break;
      if (full()) {  // the rest keeps its white space but the leading
        part(at, t.size());
        break;
      }
      const size_t begin = at;
      while (at < t.size() && !is_space(char_at(t, at))) at += char_bytes(t, at);
      part(begin, at);
    }
  } else {
    size_t end = t.size();
    for (;;) {
      while (end && is_space(char_at(t, prev(end)))) end = prev(end);
      if (!end) break;
      if (full()) {
        part(0, end);
        break;
      }
      const size_t stop = end;
      while (end && !is_space(char_at(t, prev(end)))) end = prev(end);
      part(end, stop);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const auto& [b, e] : parts) out.push_back(substring(run, *v.s, b, e));
  return run.list(std::move(out));
}

Value split_lines(Run& run, const Value& v, bool keep_ends) {
  const std::string& t = v.s->text;
  run.work(t.size());
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t at = 0; at < t.size();) {
    const uint32_t c = char_at(t, at);
    const bool line_end = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
    size_t next = at + char_bytes(t, at);
    if (line_end) {
      if (c == '\r' && next < t.size() && t[next] == '\n') ++next;
      run.step();
      out.push_back(substring(run, *v.s, begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < t.size()) out.push_back(substring(run, *v.s, begin, t.size()));
  return run.list(std::move(out));
}

Value replace(Run& run, const Value& v, const Str& from, const Str& to, int64_t max) {
  const std::string& t = v.s->text;
  run.work(t.size());
  Builder out(run);
  size_t at = 0;
  int64_t done = 0;
  if (from.text.empty()) {  // between all characters and at both ends
    for (;;) {
      if (max >= 0 && done >= max) break;
      run.step();
      out.add(to);
      ++done;
      if (at >= t.size()) break;
      const size_t n = char_bytes(t, at);
      out.add(*v.s, at, at + n);
      at += n;
    }
  } else {
    while (max < 0 || done < max) {
      const size_t hit = find_bytes(t, from.text, at);
      if (hit == std::string::npos) break;
      run.step();
      out.add(*v.s, at, hit);
      out.add(to);
      at = hit + from.text.size();
      ++done;
    }
    if (!done) return Value::string(v.s);
  }
  out.add(*v.s, at, t.size());
  return out.finish();
}

Value join(Run& run, const Str& sep, const std::vector<Value>& parts) {
  Builder out(run);
  for (size_t i = 0; i < parts.size(); ++i) {
    run.step();
    if (i) out.add(sep);
    out.add(*parts[i].s);
  }
  return out.finish();
}

Value partition(Run& run, const Value& v, const Str& sep, bool from_right) {
  const std::string& t = v.s->text;
  if (sep.text.empty()) run.error("empty separator");
  run.work(t.size());
  const size_t hit = from_right ? rfind_bytes(t, sep.text) : find_bytes(t, sep.text, 0);
  if (hit == std::string::npos) {
    if (from_right)
      return run.list({run.string(""), run.string(""), Value::string(v.s)}, Kind::tuple);
    return run.list({Value::string(v.s), run.string(""), run.string("")}, Kind::tuple);
  }
  const size_t after = hit + sep.text.size();
  return run.list({substring(run, *v.s, 0, hit), substring(run, *v.s, hit, after),
                   substring(run, *v.s, after, t.size())},
                  Kind::tuple);
}

Value repeat(Run& run, const Value& v, Int times) {
  const Str& s = *v.s;
  if (times <= 0 || s.text.empty()) return run.string("");
  const Int bytes = static_cast<Int>(s.text.size());
  if (times > static_cast<Int>(run.limits.max_output) / bytes)
    run.error("a repeated text would be longer than ", run.limits.max_output, " (max_output)");
  Builder out(run);
  run.step(static_cast<uint64_t>(times));
  for (Int i = 0; i < times; ++i) out.add(s);
  return out.finish();
}

Value slice_string(Run& run, const Value& v, int64_t start, int64_t step, int64_t count) {
  const std::string& t = v.s->text;
  run.work(t.size());
  if (count <= 0) return run.string("");
  if (step == 1) {
    const size_t begin = byte_of_char(t, static_cast<size_t>(start));
    const size_t bytes =
        byte_of_char(std::string_view(t).substr(begin), static_cast<size_t>(count));
    if (begin == 0 && bytes == t.size()) return Value::string(v.s);
    return substring(run, *v.s, begin, begin + bytes);
  }
  std::vector<size_t> starts;
  for (size_t i = 0; i < t.size(); i += char_bytes(t, i)) starts.push_back(i);
  run.step(starts.size() >> 4);
  starts.push_back(t.size());
  Builder out(run);
  for (int64_t n = 0; n < count; ++n) {
    run.step();
    const size_t i = static_cast<size_t>(start + n * step);
    out.add(*v.s, starts[i], starts[i + 1]);
  }
  return out.finish();
}

Value reverse_string(Run& run, const Value& v) {
  const int64_t n = length(run, v);
  return slice_string(run, v, n - 1, -1, n);
}

Value escape_html(Run& run, const Value& v) {
  const Str& s = *v.s;
  Builder out(run);
  size_t from = 0;
  MarkCursor marks(s);
  for (size_t i = 0; i < s.text.size(); ++i) {
    const char* to = nullptr;
    switch (s.text[i]) {
      case '&': to = "&amp;"; break;
      case '<': to = "&lt;"; break;
      case '>': to = "&gt;"; break;
      case '\'': to = "&#39;"; break;
      case '"': to = "&#34;"; break;
      default: continue;
    }
    out.add(s, from, i);
    out.add(to, marks.untrusted(i));
    from = i + 1;
  }
  out.add(s, from, s.text.size());
  return out.finish();
}

}  // namespace orlop::tmpl
