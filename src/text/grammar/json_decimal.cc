#include <algorithm>
#include <cstdlib>

#include "text/grammar/json_number.h"

namespace orlop::schema {

std::string Decimal::text() const {
  return (negative ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction);
}

Decimal decimal_of(const OrderedJson& number) {
  std::string text = number.is_number_float() ? double_text(number.get<double>()) : number.dump();
  Decimal d;
  if (text[0] == '-') {
    d.negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::atoi(text.c_str() + e + 1);
    text.resize(e);
  }
  const size_t point = text.find('.');
  std::string whole = text.substr(0, point);
  std::string fraction = point == std::string::npos ? "" : text.substr(point + 1);
  if (exponent > 0) {  // of a double: at most 308
    fraction.resize(std::max(fraction.size(), static_cast<size_t>(exponent)), '0');
    whole += fraction.substr(0, static_cast<size_t>(exponent));
    fraction.erase(0, static_cast<size_t>(exponent));
  } else if (exponent < 0) {
    whole.insert(0, static_cast<size_t>(-exponent), '0');
    fraction.insert(0, whole.substr(whole.size() - static_cast<size_t>(-exponent)));
    whole.resize(whole.size() - static_cast<size_t>(-exponent));
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  const size_t last = fraction.find_last_not_of('0');
  fraction.resize(last == std::string::npos ? 0 : last + 1);
  d.whole = whole.empty() ? "0" : whole;
  d.fraction = fraction;
  if (d.zero()) d.negative = false;
  return d;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = a.whole.size() != b.whole.size() ? (a.whole.size() < b.whole.size() ? -1 : 1)
                                               : a.whole.compare(b.whole);
  if (order == 0) order = a.fraction.compare(b.fraction);  // no trailing zeros: as texts
  const int sign = order < 0 ? -1 : order > 0 ? 1 : 0;
  return a.negative ? -sign : sign;
}

uint64_t remainder_of(const std::string& whole, uint64_t divisor) {
  uint64_t r = 0;
  for (const char c : whole) r = (r * 10 + static_cast<uint64_t>(c - '0')) % divisor;
  return r;
}

void NumberBounds::raise(const Decimal& to, bool open) {
  const int order = low ? compare(to, *low) : 1;
  if (order > 0) low_open = open;
  if (order == 0) low_open |= open;
  if (order > 0) low = to;
}

void NumberBounds::lower(const Decimal& to, bool open) {
  const int order = high ? compare(to, *high) : -1;
  if (order < 0) high_open = open;
  if (order == 0) high_open |= open;
  if (order < 0) high = to;
}

bool NumberBounds::contains(const Decimal& n) const {
  if (low) {
    const int order = compare(n, *low);
    if (order < 0 || (order == 0 && low_open)) return false;
  }
  if (high) {
    const int order = compare(n, *high);
    if (order > 0 || (order == 0 && high_open)) return false;
  }
  if ((integer || multiple) && !n.integral()) return false;
  return multiple == 0 || remainder_of(n.whole, multiple) == 0;
}

}  // namespace orlop::schema
