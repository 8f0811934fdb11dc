// Numbers between bounds, as grammar: exact, digit by digit.
#pragma once
#include <optional>
#include <string>

#include "text/grammar/json_text.h"

namespace orlop::schema {

// A decimal number; no leading zeros in whole ("0" for none), no trailing ones in fraction.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;

  bool zero() const { return whole == "0" && fraction.empty(); }
  bool integral() const { return fraction.empty(); }
  bool operator==(const Decimal&) const = default;
  std::string text() const;
};

// The digits that a double is written with, not its binary value.
Decimal decimal_of(const OrderedJson& number);
int compare(const Decimal& a, const Decimal& b);
// Of an integral number, sign left out. divisor: at most max_multiple.
uint64_t remainder_of(const std::string& whole, uint64_t divisor);

constexpr uint64_t max_multiple = 1'000'000'000'000'000'000;

struct NumberBounds {
  std::optional<Decimal> low, high;          // both included
  bool low_open = false, high_open = false;  // or left out
  bool integer = false;
  uint64_t multiple = 0;  // 0: of nothing; else integers alone

  void raise(const Decimal& to, bool open);
  void lower(const Decimal& to, bool open);
  bool free() const { return !low && !high && multiple == 0; }
  bool contains(const Decimal& number) const;
};

bool possible(const NumberBounds& bounds);  // some number lies between

// `nothing` when none lies between. Integers come without point or exponent, bounded numbers
// without exponent; what a double cannot tell from an excluded bound is left out.
// Error(unsupported), in words after `where`: too large a multiple.
Expr number_expr(JsonText& text, Rules& rules, const NumberBounds& bounds,
                 const std::string& where);

}  // namespace orlop::schema
