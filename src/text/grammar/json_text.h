// The pieces that every JSON text is made of, as grammar. What is allowed, everywhere:
// - White space: after { [ and , and before } ] a line feed with up to 32 spaces may come; after ,
// and :
//   one space. Nothing before or after the text, nothing inside {} and [].
// - Strings: any code point raw but for controls, " and \. Escapes: \" \\ \/ \b \f \n \r \t, and
// \u00XX for
//   controls alone. Keys have one spelling each: no \/, and \u00xx for controls without a short
//   one.
// - Integers: up to 20 digits, no -0. Numbers: up to 20 digits before and 20 after the point, or
// one
//   before it and an exponent of e-324 to e307.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/rules.h"

namespace orlop::schema {

using Expr = Rules::Expr;
constexpr Expr nothing = -1;  // no text at all matches; never put into Rules

constexpr int32_t max_digits = 20;
constexpr uint32_t max_code = 0x10ffff;

// One such character of a string value, or of a key (one spelling a code point).
Expr string_chars(Rules& rules, std::span<const CharRange> ranges);
Expr key_chars(Rules& rules, std::span<const CharRange> ranges);

// The text of a string in quotes, as keys are spelled.
std::string string_text(std::string_view text);
// As Python and JavaScript write a double: the shortest digits that read back as it.
std::string double_text(double value);

class JsonText {
 public:
  explicit JsonText(Rules& rules);

  // Of parts that may be `nothing`.
  Expr sequence(std::span<const Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr optional(Expr part);
  // One of these texts; common beginnings are shared. Sorts them.
  Expr one_of(std::vector<std::string>& texts);

  Expr open(char bracket);  // and the white space inside
  Expr close(char bracket);
  Expr comma() { return comma_; }  // and the white space after
  Expr colon() { return colon_; }
  Expr string_char() { return string_char_; }

  // Rules of their own, made when first asked for.
  Expr value();
  Expr object();
  Expr array();
  Expr string();
  Expr key();
  Expr number();
  Expr integer();

  // This very value, white space free.
  Expr literal(const OrderedJson& value);

 private:
  Expr named(const char* name, const std::function<Expr()>& body);
  Expr trie(std::span<const std::string> texts, size_t depth, int32_t level);

  Rules& rules_;
  std::map<std::string_view, Expr> named_;
  Expr newline_, comma_, colon_, string_char_;
};

}  // namespace orlop::schema
