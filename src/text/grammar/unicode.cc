// General categories from utf8proc; scripts and binary properties by asking PCRE2 about every code
// point. Names: Unicode's PropertyValueAliases.txt, as ECMA-262's table of \p{...} takes them.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/grammar/unicode.h"

#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {
namespace {

constexpr CharRange surrogates = {0xd800, 0xdfff};

constexpr uint32_t bit(utf8proc_category_t c) {
  return uint32_t{1} << c;
}

struct Category {
  std::string_view short_name, long_name, other_name;  // as canonical() writes them
  uint32_t mask;                                       // of utf8proc's numbers
};

constexpr uint32_t cased =
    bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) | bit(UTF8PROC_CATEGORY_LT);
constexpr uint32_t letters = cased | bit(UTF8PROC_CATEGORY_LM) | bit(UTF8PROC_CATEGORY_LO);
constexpr uint32_t marks =
    bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
constexpr uint32_t numbers =
    bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);
constexpr uint32_t punctuation = bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) |
                                 bit(UTF8PROC_CATEGORY_PS) | bit(UTF8PROC_CATEGORY_PE) |
                                 bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                                 bit(UTF8PROC_CATEGORY_PO);
constexpr uint32_t symbols = bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) |
                             bit(UTF8PROC_CATEGORY_SK) | bit(UTF8PROC_CATEGORY_SO);
constexpr uint32_t separators =
    bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP);
constexpr uint32_t others = bit(UTF8PROC_CATEGORY_CC) | bit(UTF8PROC_CATEGORY_CF) |
                            bit(UTF8PROC_CATEGORY_CS) | bit(UTF8PROC_CATEGORY_CO) |
                            bit(UTF8PROC_CATEGORY_CN);
constexpr uint32_t every_category = 0x3fffffff;

constexpr Category categories[] = {
    {"l", "letter", "", letters},
    {"lc", "casedletter", "", cased},
    {"lu", "uppercaseletter", "", bit(UTF8PROC_CATEGORY_LU)},
    {"ll", "lowercaseletter", "", bit(UTF8PROC_CATEGORY_LL)},
    {"lt", "titlecaseletter", "", bit(UTF8PROC_CATEGORY_LT)},
    {"lm", "modifierletter", "", bit(UTF8PROC_CATEGORY_LM)},
    {"lo", "otherletter", "", bit(UTF8PROC_CATEGORY_LO)},
    {"m", "mark", "combiningmark", marks},
    {"mn", "nonspacingmark", "", bit(UTF8PROC_CATEGORY_MN)},
    {"mc", "spacingmark", "", bit(UTF8PROC_CATEGORY_MC)},
    {"me", "enclosingmark", "", bit(UTF8PROC_CATEGORY_ME)},
    {"n", "number", "", numbers},
    {"nd", "decimalnumber", "digit", bit(UTF8PROC_CATEGORY_ND)},
    {"nl", "letternumber", "", bit(UTF8PROC_CATEGORY_NL)},
    {"no", "othernumber", "", bit(UTF8PROC_CATEGORY_NO)},
    {"p", "punctuation", "punct", punctuation},
    {"pc", "connectorpunctuation", "", bit(UTF8PROC_CATEGORY_PC)},
    {"pd", "dashpunctuation", "", bit(UTF8PROC_CATEGORY_PD)},
    {"ps", "openpunctuation", "", bit(UTF8PROC_CATEGORY_PS)},
    {"pe", "closepunctuation", "", bit(UTF8PROC_CATEGORY_PE)},
    {"pi", "initialpunctuation", "", bit(UTF8PROC_CATEGORY_PI)},
    {"pf", "finalpunctuation", "", bit(UTF8PROC_CATEGORY_PF)},
    {"po", "otherpunctuation", "", bit(UTF8PROC_CATEGORY_PO)},
    {"s", "symbol", "", symbols},
    {"sm", "mathsymbol", "", bit(UTF8PROC_CATEGORY_SM)},
    {"sc", "currencysymbol", "", bit(UTF8PROC_CATEGORY_SC)},
    {"sk", "modifiersymbol", "", bit(UTF8PROC_CATEGORY_SK)},
    {"so", "othersymbol", "", bit(UTF8PROC_CATEGORY_SO)},
    {"z", "separator", "", separators},
    {"zs", "spaceseparator", "", bit(UTF8PROC_CATEGORY_ZS)},
    {"zl", "lineseparator", "", bit(UTF8PROC_CATEGORY_ZL)},
    {"zp", "paragraphseparator", "", bit(UTF8PROC_CATEGORY_ZP)},
    {"c", "other", "", others},
    {"cc", "control", "cntrl", bit(UTF8PROC_CATEGORY_CC)},
    {"cf", "format", "", bit(UTF8PROC_CATEGORY_CF)},
    {"cs", "surrogate", "", bit(UTF8PROC_CATEGORY_CS)},
    {"co", "privateuse", "", bit(UTF8PROC_CATEGORY_CO)},
    {"cn", "unassigned", "", bit(UTF8PROC_CATEGORY_CN)},
    {"any", "any", "", every_category},
    {"assigned", "assigned", "", every_category & ~bit(UTF8PROC_CATEGORY_CN)},
};

const Category* category_of(std::string_view name) {
  for (const Category& c : categories)
    if (name == c.short_name || name == c.long_name ||
        (!c.other_name.empty() && name == c.other_name))
      return &c;
  return nullptr;
}

struct Run {
  uint32_t first;
  uint8_t category;
};

// Where the category changes, over all code points: some thousand places.
const std::vector<Run>& category_runs() {
  static const std::vector<Run> all = [] {
    std::vector<Run> runs;
    for (uint32_t c = 0; c <= last_code_point; ++c) {
      const auto k = static_cast<uint8_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
      if (runs.empty() || runs.back().category != k) runs.push_back({c, k});
    }
    return runs;
  }();
  return all;
}

CharRanges of_categories(uint32_t mask) {
  const std::vector<Run>& runs = category_runs();
  CharRanges out;
  for (size_t i = 0; i < runs.size(); ++i)
    if (mask >> runs[i].category & 1)
      out.push_back({runs[i].first, i + 1 < runs.size() ? runs[i + 1].first - 1 : last_code_point});
  normalize_ranges(out);
  return out;
}

// Every code point that may differ from the one before it. Planes 4 to 13, most of 14, and the private
// planes 15 and 16 are all alike but for the two noncharacters at the end of each.
std::string probes() {
  std::string text;
  text.reserve(size_t{1} << 20);
  for (uint32_t c = 0; c <= last_code_point; ++c) {
    if (c == surrogates.first) c = surrogates.last + 1;
    const bool alike = (c >= 0x40000 && c < 0xe0000) || c >= 0xe2000;
    if (alike && (c & 0xffff) > 0 && (c & 0xffff) < 0xfffd && c != 0xe2000) c |= 0xfffd;
    utf8_append(text, c);
  }
  return text;
}

// Nothing when PCRE2 does not know the property ("sc:greek", "emoji").
std::optional<CharRanges> by_pcre2(const std::string& property) {
  const std::string pattern = cat("\\p{", property, "}++|\\P{", property, "}++");
  int code = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_ANCHORED, &code, &at, nullptr),
      pcre2_code_free);
  if (!compiled) return std::nullopt;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (!data) fail(Status::out_of_memory, "regular expression: no memory for a Unicode property");
  const std::string text = probes();
  const auto match = [&](const pcre2_code* what, size_t from, uint32_t options) {
    return pcre2_match(what, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data.get(), nullptr);
  };
  // Runs with and without the property take turns; the first code point says which comes first.
  const std::string positive = cat("\\p{", property, "}");
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> one(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(positive.data()), positive.size(),
                    PCRE2_UTF | PCRE2_ANCHORED, &code, &at, nullptr),
      pcre2_code_free);
  if (!one) return std::nullopt;
  bool has = match(one.get(), 0, 0) > 0;
  CharRanges out;
  for (size_t pos = 0; pos < text.size(); has = !has) {
    if (const int rc = match(compiled.get(), pos, 0); rc <= 0)
      fail(Status::internal, "PCRE2 on property ", property, ": code ", rc);
    const size_t end = pcre2_get_ovector_pointer(data.get())[1];
    const uint32_t next = end < text.size() ? utf8_step(text, end).code : last_code_point + 1;
    if (has) out.push_back({utf8_step(text, pos).code, next - 1});
    pos = end;
  }
  normalize_ranges(out);
  return out;
}

// Lower case, without _; empty when it has other characters than names have.
std::string canonical(std::string_view name) {
  std::string out;
  if (name.size() > 64) return out;
  for (char c : name) {
    if (c == '_') continue;
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return {};
    out.push_back(c);
  }
  return out;
}

std::optional<CharRanges> look_up(const std::string& key, const std::string& value) {
  if (key == "gc" || key == "generalcategory") {
    const Category* c = category_of(value);
    if (!c || value == "any" || value == "assigned") return std::nullopt;
    return of_categories(c->mask);
  }
  if (key == "sc" || key == "script") return by_pcre2("sc:" + value);
  if (key == "scx" || key == "scriptextensions") return by_pcre2("scx:" + value);
  if (!key.empty()) return std::nullopt;
  if (const Category* c = category_of(value)) return of_categories(c->mask);
  if (auto script = by_pcre2("sc:" + value)) return script;
  // What PCRE2 alone calls a property: Xan, Xwd, ...; Bidi classes.
  if (value[0] == 'x' && value.size() == 3) return std::nullopt;
  if (value.starts_with("bidi") && value != "bidic" && value != "bidicontrol" && value != "bidim" &&
      value != "bidimirrored")
    return std::nullopt;
  return by_pcre2(value);
}

}  // namespace

void normalize_ranges(CharRanges& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](CharRange a, CharRange b) { return a.first < b.first; });
  CharRanges out;
  const auto put = [&](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!out.empty() && first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, last);
    else
      out.push_back({first, last});
  };
  for (CharRange r : ranges) {
    r.last = std::min(r.last, last_code_point);
    put(r.first, std::min(r.last, surrogates.first - 1));
    put(std::max(r.first, surrogates.last + 1), r.last);
  }
  ranges = std::move(out);
}

CharRanges complement_ranges(const CharRanges& ranges) {
  CharRanges out;
  uint32_t next = 0;
  for (CharRange r : ranges) {
    if (next < r.first) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= last_code_point) out.push_back({next, last_code_point});
  normalize_ranges(out);
  return out;
}

const CharRanges* unicode_property(std::string_view name) {
  const size_t equals = name.find('=');
  const bool keyed = equals != std::string_view::npos;
  const std::string key = keyed ? canonical(name.substr(0, equals)) : "";
  const std::string value = canonical(keyed ? name.substr(equals + 1) : name);
  if (value.empty() || (keyed && key.empty())) return nullptr;
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<const CharRanges>> known;  // as many as names exist
  const std::lock_guard lock(mutex);
  const std::string full = keyed ? key + "=" + value : value;
  if (const auto it = known.find(full); it != known.end()) return it->second.get();
  auto found = look_up(key, value);
  if (!found) return nullptr;
  found->shrink_to_fit();
  return known.emplace(full, std::make_unique<const CharRanges>(std::move(*found)))
      .first->second.get();
}

}  // namespace orlop
