// Case mapping and character classes as Python's str has them. Simple mappings and categories come
// from utf8proc; the full mappings that make one character several are those of the Unicode
// Character Database, SpecialCasing.txt.
#include <utf8proc.h>

#include <algorithm>

#include "text/template_string.h"

namespace orlop::tmpl {
namespace {

struct Special {
  uint32_t from;
  uint32_t upper[3];
  uint32_t title[3];
};

// clang-format off
constexpr Special specials[] = {
    {0x00df, {0x53, 0x53}, {0x53, 0x73}}, {0x0149, {0x2bc, 0x4e}, {0x2bc, 0x4e}},
    {0x01f0, {0x4a, 0x30c}, {0x4a, 0x30c}}, {0x0390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x03b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x0587, {0x535, 0x552}, {0x535, 0x582}}, {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}}, {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}}, {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}}, {0x1f80, {0x1f08, 0x399}, {0x1f88}},
    {0x1f81, {0x1f09, 0x399}, {0x1f89}}, {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f83, {0x1f0b, 0x399}, {0x1f8b}}, {0x1f84, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f85, {0x1f0d, 0x399}, {0x1f8d}}, {0x1f86, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f87, {0x1f0f, 0x399}, {0x1f8f}}, {0x1f88, {0x1f08, 0x399}, {0x1f88}},
    {0x1f89, {0x1f09, 0x399}, {0x1f89}}, {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}}, {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}}, {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}}, {0x1f90, {0x1f28, 0x399}, {0x1f98}},
    {0x1f91, {0x1f29, 0x399}, {0x1f99}}, {0x1f92, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f93, {0x1f2b, 0x399}, {0x1f9b}}, {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f95, {0x1f2d, 0x399}, {0x1f9d}}, {0x1f96, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f97, {0x1f2f, 0x399}, {0x1f9f}}, {0x1f98, {0x1f28, 0x399}, {0x1f98}},
    {0x1f99, {0x1f29, 0x399}, {0x1f99}}, {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}}, {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}}, {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}}, {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa1, {0x1f69, 0x399}, {0x1fa9}}, {0x1fa2, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fa3, {0x1f6b, 0x399}, {0x1fab}}, {0x1fa4, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fa5, {0x1f6d, 0x399}, {0x1fad}}, {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
    {0x1fa7, {0x1f6f, 0x399}, {0x1faf}}, {0x1fa8, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa9, {0x1f69, 0x399}, {0x1fa9}}, {0x1faa, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fab, {0x1f6b, 0x399}, {0x1fab}}, {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fad, {0x1f6d, 0x399}, {0x1fad}}, {0x1fae, {0x1f6e, 0x399}, {0x1fae}},
    {0x1faf, {0x1f6f, 0x399}, {0x1faf}}, {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}},
    {0x1fb3, {0x391, 0x399}, {0x1fbc}}, {0x1fb4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}}, {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}}, {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}}, {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}}, {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}}, {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}}, {0x1ff3, {0x3a9, 0x399}, {0x1ffc}},
    {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}}, {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}}, {0x1ffc, {0x3a9, 0x399}, {0x1ffc}},
    {0xfb00, {0x46, 0x46}, {0x46, 0x66}}, {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}}, {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}}, {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}}, {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}}, {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}}, {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
};
// clang-format on

const Special* special(uint32_t c) {
  const Special* end = std::end(specials);
  const Special* at = std::lower_bound(std::begin(specials), end, c,
                                       [](const Special& s, uint32_t v) { return s.from < v; });
  return at != end && at->from == c ? at : nullptr;
}

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool other_lower(uint32_t c) {  // Other_Lowercase
  return c == 0xaa || c == 0xba || (c >= 0x2b0 && c <= 0x2b8) || c == 0x2c0 || c == 0x2c1 ||
         (c >= 0x2e0 && c <= 0x2e4) || c == 0x345 || c == 0x37a || (c >= 0x1d2c && c <= 0x1d6a) ||
         c == 0x1d78 || (c >= 0x1d9b && c <= 0x1dbf) || c == 0x2071 || c == 0x207f ||
         (c >= 0x2090 && c <= 0x209c) || (c >= 0x2170 && c <= 0x217f) ||
         (c >= 0x24d0 && c <= 0x24e9) || c == 0x2c7c || c == 0x2c7d || c == 0xa69c || c == 0xa69d ||
         c == 0xa770 || c == 0xa7f8 || c == 0xa7f9 || (c >= 0xab5c && c <= 0xab5f);
}
bool other_upper(uint32_t c) {  // Other_Uppercase
  return (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}
bool is_lower(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || other_lower(c); }
bool is_upper(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || other_upper(c); }
bool is_cased(uint32_t c) {
  return is_lower(c) || is_upper(c) || category(c) == UTF8PROC_CATEGORY_LT;
}
bool case_ignorable(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x55f ||
             c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 ||
             c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e || c == 0xff1a;
  }
}

void put_all(std::string& out, const uint32_t (&cps)[3]) {
  for (uint32_t c : cps)
    if (c) append_utf8(out, c);
}
uint32_t simple(utf8proc_int32_t (*f)(utf8proc_int32_t), uint32_t c) {
  return static_cast<uint32_t>(f(static_cast<utf8proc_int32_t>(c)));
}
void put_upper(std::string& out, uint32_t c) {
  if (const Special* s = special(c)) return put_all(out, s->upper);
  append_utf8(out, simple(utf8proc_toupper, c));
}
void put_title(std::string& out, uint32_t c) {
  if (const Special* s = special(c)) return put_all(out, s->title);
  append_utf8(out, simple(utf8proc_totitle, c));
}

// A capital sigma at the end of a word becomes the final form.
bool final_sigma(std::string_view t, size_t at) {
  size_t i = at;
  bool before = false;
  while (i > 0) {
    --i;
    while (i && (static_cast<unsigned char>(t[i]) & 0xc0) == 0x80) --i;
    const uint32_t c = char_at(t, i);
    if (case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (i = at + char_bytes(t, at); i < t.size(); i += char_bytes(t, i)) {
    const uint32_t c = char_at(t, i);
    if (case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}
void put_lower(std::string& out, std::string_view t, size_t at, uint32_t c, Run& run) {
  if (c == 0x130) {
    append_utf8(out, 'i');
    return append_utf8(out, 0x307);
  }
  if (c == 0x3a3) {
    run.step();
    return append_utf8(out, final_sigma(t, at) ? 0x3c2 : 0x3c3);
  }
  append_utf8(out, simple(utf8proc_tolower, c));
}

bool word_border(uint32_t c) {  // of the |title filter
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

}  // namespace

Value change_case(Run& run, const Value& v, Case how) {
  const std::string_view t = v.s->text;
  Builder out(run);
  MarkCursor marks(*v.s);
  run.step(t.size() >> 4);
  bool start = true;
  size_t rest = 0;  // where the part of the word after its first letter begins
  std::string one;
  for (size_t i = 0; i < t.size();) {
    const size_t n = char_bytes(t, i);
    const uint32_t c = char_at(t, i);
    one.clear();
    switch (how) {
      case Case::upper: put_upper(one, c); break;
      case Case::lower: put_lower(one, t, i, c, run); break;
      case Case::capitalize:
        start ? put_title(one, c) : put_lower(one, t, i, c, run);
        start = false;
        break;
      case Case::title:
        start ? put_title(one, c) : put_lower(one, t, i, c, run);
        start = !is_cased(c);
        break;
      case Case::title_words:
        // The filter lowers the rest of each word by itself: its first letter is no context.
        if (start) rest = i + n;
        start ? put_upper(one, c) : put_lower(one, t.substr(rest), i - rest, c, run);
        start = word_border(c);
        break;
      case Case::swap:
        if (is_upper(c))
          put_lower(one, t, i, c, run);
        else if (is_lower(c))
          put_upper(one, c);
        else
          append_utf8(one, c);
        break;
      case Case::casefold: {
        utf8proc_int32_t folded[8];
        int boundary = 0;
        const auto k = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                               UTF8PROC_CASEFOLD, &boundary);
        for (utf8proc_ssize_t j = 0; j < k && j < 8; ++j)
          append_utf8(one, static_cast<uint32_t>(folded[j]));
        break;
      }
    }
    out.add(one, marks.untrusted(i));
    i += n;
  }
  return out.finish();
}

bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool all_chars(Run& run, std::string_view t, CharTest test) {
  run.step(t.size() >> 4);
  if (t.empty()) return test == CharTest::ascii || test == CharTest::printable;
  bool cased = false;
  for (size_t i = 0; i < t.size(); i += char_bytes(t, i)) {
    const uint32_t c = char_at(t, i);
    const auto cat = category(c);
    const bool letter = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    const bool superscript = c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
                             (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
    const bool decimal = cat == UTF8PROC_CATEGORY_ND;
    const bool numeric = decimal || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
    bool ok = true;
    switch (test) {
      case CharTest::alpha: ok = letter; break;
      case CharTest::decimal: ok = decimal; break;
      case CharTest::digit: ok = decimal || superscript; break;
      case CharTest::numeric: ok = numeric; break;
      case CharTest::alnum: ok = letter || numeric; break;
      case CharTest::space: ok = is_space(c); break;
      case CharTest::ascii: ok = c < 0x80; break;
      case CharTest::printable: ok = is_printable(c); break;
      case CharTest::lower:
        ok = !is_upper(c) && cat != UTF8PROC_CATEGORY_LT;
        cased = cased || is_lower(c);
        break;
      case CharTest::upper:
        ok = !is_lower(c) && cat != UTF8PROC_CATEGORY_LT;
        cased = cased || is_upper(c);
        break;
    }
    if (!ok) return false;
  }
  return test == CharTest::lower || test == CharTest::upper ? cased : true;
}

}  // namespace orlop::tmpl
