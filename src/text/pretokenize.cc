#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include <pcre2.h>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop {
namespace {

// Steps of one match at one place. The patterns in use need a few for each character.
constexpr uint32_t match_limit = 10'000'000;
constexpr uint32_t heap_limit_kib = 64 * 1024;
constexpr size_t max_pattern_bytes = 64 * 1024;

// White_Space of Unicode: PCRE2's own \s also takes U+180E.
constexpr std::string_view spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

std::string pcre2_words(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

struct Flagged {
  Piece piece;
  bool match;
};

// The behaviours as Hugging Face defines them, on alternating or adjacent flagged pieces.
void combine(const std::vector<Flagged>& parts, SplitRule::Behavior behavior,
             std::vector<Piece>& out) {
  const auto put = [&](Piece p) {
    if (p.begin < p.end) out.push_back(p);
  };
  switch (behavior) {
    case SplitRule::Behavior::isolated:
      for (const Flagged& f : parts) put(f.piece);
      return;
    case SplitRule::Behavior::removed:
      for (const Flagged& f : parts)
        if (!f.match) put(f.piece);
      return;
    case SplitRule::Behavior::contiguous:
    case SplitRule::Behavior::merged_with_previous: {
      const bool contiguous = behavior == SplitRule::Behavior::contiguous;
      Piece open;
      bool any = false, before = false;
      for (const Flagged& f : parts) {
        const bool joins = contiguous ? any && f.match == before : any && f.match && !before;
        if (joins) {
          open.end = f.piece.end;
        } else {
          if (any) put(open);
          open = f.piece;
        }
        any = true;
        before = f.match;
      }
      if (any) put(open);
      return;
    }
    case SplitRule::Behavior::merged_with_next: {
      std::vector<Piece> reversed;
      Piece open;
      bool any = false, after = false;
      for (size_t i = parts.size(); i-- > 0;) {
        const Flagged& f = parts[i];
        if (any && f.match && !after) {
          open.begin = f.piece.begin;
        } else {
          if (any) reversed.push_back(open);
          open = f.piece;
        }
        any = true;
        after = f.match;
      }
      if (any) reversed.push_back(open);
      for (size_t i = reversed.size(); i-- > 0;) put(reversed[i]);
      return;
    }
  }
}

}  // namespace

struct Pretokenizer::Rule {
  pcre2_code* code = nullptr;
  bool jit = false;
  size_t index = 0;
  SplitRule::Behavior behavior{};
  bool invert = false;

  ~Rule() { pcre2_code_free(code); }
  void cut(std::string_view text, Piece range, pcre2_match_data* data, pcre2_match_context* context,
           std::vector<Flagged>& parts) const;
};

Pretokenizer::Pretokenizer(const std::vector<SplitRule>& rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    auto rule = std::make_unique<Rule>();
    rule->index = i;
    rule->behavior = rules[i].behavior;
    rule->invert = rules[i].invert;
    const std::string pattern = pcre2_pattern(rules[i].pattern);
    int code = 0;
    PCRE2_SIZE where = 0;
    rule->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                               &code, &where, nullptr);
    if (!rule->code)
      fail(Status::bad_format, "pre-tokenizer pattern ", i, ": ", pcre2_words(code), " at byte ",
           where, " of ", pattern);
    // Without JIT (no executable memory) the interpreter gives the same pieces, slower.
    rule->jit = pcre2_jit_compile(rule->code, PCRE2_JIT_COMPLETE) == 0;
    rules_.push_back(std::move(rule));
  }
}

Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::Rule::cut(std::string_view text, Piece range, pcre2_match_data* data,
                             pcre2_match_context* context, std::vector<Flagged>& parts) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() + range.begin);
  const size_t size = range.end - range.begin;
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(data);
  size_t shown = 0;  // up to here in parts
  size_t from = 0;   // where the next match may begin
  while (from <= size) {
    const int rc = jit ? pcre2_jit_match(code, subject, size, from, 0, data, context)
                       : pcre2_match(code, subject, size, from, PCRE2_NO_UTF_CHECK, data, context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      fail(Status::unsupported, "pre-tokenizer pattern ", index, ": ", pcre2_words(rc),
           " in the piece at byte ", range.begin, " of ", size, " bytes");
    const size_t begin = ovector[0], end = ovector[1];
    if (begin < from || end < begin)  // \K or a look-behind that moves the match backwards
      fail(Status::unsupported, "pre-tokenizer pattern ", index, ": matches out of order");
    if (begin > shown) parts.push_back({{range.begin + shown, range.begin + begin}, invert});
    if (end > begin) parts.push_back({{range.begin + begin, range.begin + end}, !invert});
    shown = end;
    from = end;
    if (end == begin) {
      if (end == size) break;
      from += utf8_step(text.substr(range.begin, size), end).length;
    }
  }
  if (shown < size) parts.push_back({{range.begin + shown, range.end}, invert});
}

void Pretokenizer::split(std::string_view text, std::vector<Piece>& pieces) const {
  pieces.clear();
  if (text.empty()) return;
  pieces.push_back({0, text.size()});
  if (rules_.empty()) return;
  const MatchData data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const MatchContext context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), match_limit);
  pcre2_set_heap_limit(context.get(), heap_limit_kib);
  std::vector<Piece> cut;
  std::vector<Flagged> parts;
  for (const auto& rule : rules_) {
    cut.clear();
    for (const Piece piece : pieces) {
      parts.clear();
      rule->cut(text, piece, data.get(), context.get(), parts);
      combine(parts, rule->behavior, cut);
    }
    pieces.swap(cut);
  }
}

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (!step.whole) fail(Status::bad_format, "pre-tokenizer: a split string is not UTF-8");
    char code[16];
    std::snprintf(code, sizeof code, "\\x{%x}", static_cast<unsigned>(step.code));
    out += code;
    pos += step.length;
  }
  return out;
}

std::string pcre2_pattern(std::string_view pattern) {
  if (pattern.size() > max_pattern_bytes)
    fail(Status::bad_format, "pre-tokenizer pattern of ", pattern.size(), " bytes: the limit is ",
         max_pattern_bytes);
  if (utf8_valid_prefix(pattern) != pattern.size())
    fail(Status::bad_format, "pre-tokenizer pattern is not UTF-8");
  std::string out;
  bool in_class = false;
  const auto no = [&](std::string_view what) {
    fail(Status::unsupported, "pre-tokenizer pattern: ", what, " in ", pattern);
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (++i == pattern.size()) fail(Status::bad_format, "pre-tokenizer pattern ends in \\");
      switch (pattern[i]) {
        case 's':
          out += in_class ? cat(spaces) : cat("[", spaces, "]");
          break;
        case 'S':
          if (in_class) no("\\S inside a class");
          out += cat("[^", spaces, "]");
          break;
        case 'u': {  // \uHHHH
          const std::string_view digits = pattern.substr(i + 1, 4);
          if (digits.size() != 4 ||
              digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
            no("\\u without four hexadecimal digits");
          out += cat("\\x{", digits, "}");
          i += 4;
          break;
        }
        // These mean other things in the two syntaxes.
        case 'h': case 'H': case 'R': case 'X': case 'K': case 'C': case 'Q': case 'E': case 'g':
        case 'k': case 'G': case 'y': case 'Y': case 'O': case 'N': case 'Z': case 'M':
          no(cat("\\", pattern[i]));
          break;
        default:
          out += '\\';
          out += pattern[i];
      }
      continue;
    }
    if (in_class) {
      if (c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') no("&& inside a class");
      if (c == '[') {  // Oniguruma nests classes; PCRE2 takes the bracket itself
        if (i + 1 < pattern.size() && pattern[i + 1] == ':') no("a POSIX class");
        no("a class inside a class");
      }
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      continue;
    } else if (c == '(' && i + 1 < pattern.size() && pattern[i + 1] == '*') {
      no("(*");
    }
    out += c;
  }
  return out;
}

}  // namespace orlop
