#include "text/grammar/json_number.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"

namespace orlop::schema {
namespace {

// Bounds of more digits than this bound nothing (or leave nothing).
constexpr size_t most_digits = 40;
// A double tells decimals of so many digits apart.
constexpr size_t sure_digits = 15;
constexpr uint64_t max_listed = 1000;            // multiples that are written out
constexpr uint64_t max_remainder_states = 5000;  // of an automaton over digits

bool less(const std::string& a, const std::string& b) {  // numerals without leading zeros
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::string power_of_ten(size_t digits) {  // the least numeral of so many
  std::string out(digits, '0');
  out[0] = '1';
  return out;
}

std::string add(std::string a, std::string b) {
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(0, a.size() - b.size(), '0');
  int carry = 0;
  for (size_t i = a.size(); i-- > 0;) {
    const int sum = a[i] - '0' + b[i] - '0' + carry;
    a[i] = static_cast<char>('0' + sum % 10);
    carry = sum / 10;
  }
  if (carry == 0) return a;
  std::string longer(1, '1');
  longer += a;
  return longer;
}

// a >= b; leading zeros stripped.
std::string subtract(std::string a, std::string b) {
  b.insert(0, a.size() - b.size(), '0');
  int borrow = 0;
  for (size_t i = a.size(); i-- > 0;) {
    const int d = a[i] - b[i] - borrow;
    borrow = d < 0;
    a[i] = static_cast<char>('0' + d + (borrow ? 10 : 0));
  }
  a.erase(0, std::min(a.find_first_not_of('0'), a.size() - 1));
  return a;
}

// d rounded up to so many digits after the point, plus as many units of the last.
Decimal round_up(const Decimal& d, size_t digits, const std::string& units) {
  std::string all = d.whole;
  const bool cut = d.fraction.size() > digits;
  std::string fraction = d.fraction.substr(0, digits);
  fraction.resize(digits, '0');
  all += fraction;
  all.erase(0, std::min(all.find_first_not_of('0'), all.size() - 1));
  Decimal r;
  r.negative = d.negative;
  if (!d.negative) {
    if (cut) all = add(all, "1");
    all = add(all, units);
  } else if (!less(all, units)) {  // towards zero: cutting was the rounding
    all = subtract(all, units);
  } else {
    all = subtract(units, all);
    r.negative = false;
  }
  if (all.size() <= digits) all.insert(0, digits + 1 - all.size(), '0');
  r.whole = all.substr(0, all.size() - digits);
  r.fraction = all.substr(all.size() - digits);
  const size_t last = r.fraction.find_last_not_of('0');
  r.fraction.resize(last == std::string::npos ? 0 : last + 1);
  if (r.zero()) r.negative = false;
  return r;
}

Decimal negated(Decimal d) {
  d.negative = !d.negative && !d.zero();
  return d;
}

class Writer {
 public:
  Writer(JsonText& text, Rules& rules, const std::string& where)
      : text_(text), rules_(rules), where_(where) {
    digit_ = digits('0', '9');
  }

  Expr integers(const Decimal& low, const Decimal& high, uint64_t multiple) {
    std::vector<Expr> ways;
    const bool below = !low.negative && !low.zero(), above = high.negative;
    if (!below && !above) ways.push_back(rules_.literal("0"));
    if (low.negative)
      ways.push_back(seq({rules_.literal("-"),
                          magnitudes(high.negative ? high.whole : "1", low.whole, multiple)}));
    if (!high.negative && !high.zero())
      ways.push_back(magnitudes(below ? low.whole : "1", high.whole, multiple));
    return text_.choice(std::move(ways));
  }

  Expr decimals(const Decimal& low, const Decimal& high) {
    std::vector<Expr> ways;
    if (low.negative)
      ways.push_back(
          seq({rules_.literal("-"),
               decimal_magnitudes(high.negative ? negated(high) : Decimal{}, negated(low))}));
    if (!high.negative) ways.push_back(decimal_magnitudes(low.negative ? Decimal{} : low, high));
    return text_.choice(std::move(ways));
  }

 private:
  Expr seq(std::initializer_list<Expr> parts) {
    return text_.sequence({parts.begin(), parts.size()});
  }

  Expr digits(char first, char last) {
    if (first == last) return rules_.literal(std::string_view(&first, 1));
    const CharRange range[] = {{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}};
    return rules_.chars(range);
  }

  Expr some_digits(size_t least, size_t most) {
    return rules_.repeat(digit_, static_cast<int32_t>(least), static_cast<int32_t>(most));
  }

  // Multiples of m between a and b, 1 <= a.
  Expr magnitudes(std::string a, std::string b, uint64_t m) {
    std::string zeros;  // a multiple of 10 k is one of k, and a 0
    while (m > 0 && m % 10 == 0) {
      m /= 10;
      zeros += '0';
      const bool exact = a.back() == '0';
      a.pop_back();
      b.pop_back();
      if (b.empty()) return nothing;
      if (a.empty()) a.push_back('0');
      if (!exact) a = add(a, "1");
    }
    if (less(b, a)) return nothing;
    const Expr all = m <= 1 ? lengths(a, b) : multiples(a, b, m);
    return zeros.empty() ? all : seq({all, rules_.literal(zeros)});
  }

  Expr lengths(const std::string& a, const std::string& b) {
    std::vector<Expr> ways;
    size_t full_from = 0, full_to = 0;  // lengths of which every numeral lies between
    for (size_t n = a.size(); n <= b.size(); ++n) {
      const std::string first = n == a.size() ? a : power_of_ten(n);
      const std::string last = n == b.size() ? b : std::string(n, '9');
      if (first == power_of_ten(n) && last == std::string(n, '9')) {
        if (full_from == 0) full_from = n;
        full_to = n;
      } else {
        ways.push_back(between(first, last));
      }
    }
    if (full_from > 0)
      ways.push_back(seq({digits('1', '9'), some_digits(full_from - 1, full_to - 1)}));
    return text_.choice(std::move(ways));
  }

  // Digits from `low` to `high`, as many as these have.
  Expr between(std::string_view low, std::string_view high) {
    const size_t n = low.size();
    if (n == 0) return rules_.empty();
    const bool from_zeros = low.find_first_not_of('0') == std::string_view::npos;
    const bool to_nines = high.find_first_not_of('9') == std::string_view::npos;
    if (from_zeros && to_nines) return some_digits(n, n);
    if (low[0] == high[0])
      return seq({digits(low[0], low[0]), between(low.substr(1), high.substr(1))});
    const std::string zeros(n - 1, '0'), nines(n - 1, '9');
    std::vector<Expr> ways;
    char first = low[0], last = high[0];
    if (low.substr(1) != zeros) {
      ways.push_back(seq({digits(first, first), between(low.substr(1), nines)}));
      ++first;
    }
    if (high.substr(1) != nines) {
      ways.push_back(seq({digits(last, last), between(zeros, high.substr(1))}));
      --last;
    }
    if (first <= last) ways.push_back(seq({digits(first, last), some_digits(n - 1, n - 1)}));
    return text_.choice(std::move(ways));
  }

  Expr multiples(const std::string& a, const std::string& b, uint64_t m) {
    if (b.size() <= 18) {
      const uint64_t first = (std::stoull(a) + m - 1) / m * m, last = std::stoull(b);
      if (first > last) return nothing;
      if ((last - first) / m < max_listed) {
        std::vector<std::string> listed;
        for (uint64_t v = first; v <= last; v += m) listed.push_back(std::to_string(v));
        return text_.one_of(listed);
      }
    }
    if (m > max_remainder_states / b.size())
      fail(Status::unsupported, where_, "/multipleOf: not supported: ", m,
           " with numbers of up to ", b.size(), " digits (narrow minimum and maximum)");
    free_.clear();
    std::vector<Expr> ways;
    for (size_t n = a.size(); n <= b.size(); ++n) {
      low_ = n == a.size() ? a : power_of_ten(n);
      high_ = n == b.size() ? b : std::string(n, '9');
      ways.push_back(steps(0, true, true, 0, m));
    }
    return text_.choice(std::move(ways));
  }

  // What may follow `at` digits with this remainder, those of low_ (high_) so far if at_low
  // (at_high).
  Expr steps(size_t at, bool at_low, bool at_high, uint64_t rest, uint64_t m) {
    const size_t left = low_.size() - at;
    if (left == 0) return rest == 0 ? rules_.empty() : nothing;
    const bool shared = !at_low && !at_high;
    const std::pair<size_t, uint64_t> key{left, rest};
    if (shared)
      if (const auto it = free_.find(key); it != free_.end()) return it->second;
    std::map<Expr, std::vector<CharRange>> next;
    for (char d = at_low ? low_[at] : '0'; d <= (at_high ? high_[at] : '9'); ++d) {
      const Expr then = steps(at + 1, at_low && d == low_[at], at_high && d == high_[at],
                              (rest * 10 + static_cast<uint64_t>(d - '0')) % m, m);
      const uint32_t code = static_cast<uint32_t>(d);
      if (then != nothing) next[then].push_back({code, code});
    }
    std::vector<Expr> ways;
    for (const auto& [then, codes] : next) ways.push_back(seq({rules_.chars(codes), then}));
    Expr all = text_.choice(std::move(ways));
    if (shared) {
      if (left > 1 && all != nothing) {
        const int32_t rule = rules_.declare("json.multiple");
        rules_.define(rule, all);
        all = rules_.call(rule);
      }
      free_.emplace(key, all);
    }
    return all;
  }

  // Both >= 0, with at most max_digits after the point.
  Expr decimal_magnitudes(const Decimal& low, const Decimal& high) {
    low_ = low.fraction;
    high_ = high.fraction;
    if (low.whole == high.whole) {
      if (low.fraction > high.fraction) return nothing;
      return seq({rules_.literal(low.whole), fraction(!low_.empty(), true)});
    }
    if (less(high.whole, low.whole)) return nothing;
    std::vector<Expr> ways = {seq({rules_.literal(low.whole), fraction(!low_.empty(), false)}),
                              seq({rules_.literal(high.whole), fraction(false, true)})};
    const std::string first = add(low.whole, "1"), last = subtract(high.whole, "1");
    if (!less(last, first)) ways.push_back(seq({lengths(first, last), fraction(false, false)}));
    return text_.choice(std::move(ways));
  }

  Expr fraction(bool at_low, bool at_high) {
    const Expr with_point = seq({rules_.literal("."), places(0, at_low, at_high)});
    return at_low ? with_point : text_.optional(with_point);
  }

  // Digits after the point from place `at` on, those of low_ (high_) so far if at_low (at_high): at
  // least one in place 0. at_low: low_ has digits left, none of them can be left out.
  Expr places(size_t at, bool at_low, bool at_high) {
    constexpr size_t most = max_digits;
    if (!at_low && !at_high) return some_digits(at == 0, most - at);
    if (!at_low && at >= high_.size())
      return rules_.repeat(rules_.literal("0"), at == 0, static_cast<int32_t>(most - at));
    if (at >= most) return at_low ? nothing : rules_.empty();
    const char low = at_low ? low_[at] : '0';
    const char high = !at_high ? '9' : at < high_.size() ? high_[at] : '0';
    std::vector<Expr> ways;
    char first = low, last = high;
    const auto tight = [&](char d) {
      ways.push_back(seq({digits(d, d), places(at + 1, at_low && d == low && at + 1 < low_.size(),
                                               at_high && d == high)}));
    };
    if (low > high) return nothing;
    if (at_low) tight(first++);
    if (at_high && last >= first) tight(last--);
    if (first <= last) ways.push_back(seq({digits(first, last), places(at + 1, false, false)}));
    const Expr digit = text_.choice(std::move(ways));
    return at_low || at == 0 ? digit : text_.optional(digit);
  }

  JsonText& text_;
  Rules& rules_;
  const std::string& where_;
  Expr digit_;
  std::string low_, high_;
  std::map<std::pair<size_t, uint64_t>, Expr> free_;
};

// The lowest number that is offered from `low` up. By symmetry of the highest down to `high`.
Decimal lowest(const Decimal& low, bool open, bool integer) {
  if (integer) return round_up(low, 0, open && low.integral() ? "1" : "0");
  if (!open) return round_up(low, max_digits, "0");
  if (low.zero()) return round_up(low, max_digits, "1");
  const size_t whole = low.whole.size();
  if (whole <= sure_digits) return round_up(low, sure_digits - whole, "1");
  return round_up(low, 0, power_of_ten(whole - sure_digits + 1));
}

}  // namespace

namespace {

struct Span {
  Decimal from, to;
};

// The bounds as they are offered.
std::optional<Span> span_of(const NumberBounds& bounds, bool integer) {
  const Decimal* low = bounds.low ? &*bounds.low : nullptr;
  const Decimal* high = bounds.high ? &*bounds.high : nullptr;
  if (low && low->whole.size() > most_digits) {
    if (!low->negative) return {};
    low = nullptr;
  }
  if (high && high->whole.size() > most_digits) {
    if (high->negative) return {};
    high = nullptr;
  }
  // On the open side as many digits as without bounds, or one more than the other side has.
  size_t digits = max_digits;
  if (low) digits = std::max(digits, low->whole.size() + 1);
  if (high) digits = std::max(digits, high->whole.size() + 1);
  const Decimal end{false, std::string(digits, '9'), integer ? "" : std::string(max_digits, '9')};
  const Span s{low ? lowest(*low, bounds.low_open, integer) : negated(end),
               high ? negated(lowest(negated(*high), bounds.high_open, integer)) : end};
  if (compare(s.from, s.to) > 0) return {};
  return s;
}

}  // namespace

bool possible(const NumberBounds& bounds) {
  const std::optional<Span> s = span_of(bounds, bounds.integer || bounds.multiple > 0);
  if (!s) return false;
  if (bounds.multiple == 0) return true;
  if (s->from.negative != s->to.negative || s->from.zero() || s->to.zero())
    return true;  // 0 is one
  const std::string& small = s->to.negative ? s->to.whole : s->from.whole;
  const std::string& large = s->to.negative ? s->from.whole : s->to.whole;
  const uint64_t rest = remainder_of(small, bounds.multiple);
  return rest == 0 || !less(large, add(small, std::to_string(bounds.multiple - rest)));
}

Expr number_expr(JsonText& text, Rules& rules, const NumberBounds& bounds,
                 const std::string& where) {
  const bool integer = bounds.integer || bounds.multiple > 0;
  if (bounds.free()) return integer ? text.integer() : text.number();
  const std::optional<Span> s = span_of(bounds, integer);
  if (!s) return nothing;
  Writer writer(text, rules, where);
  return integer ? writer.integers(s->from, s->to, bounds.multiple)
                 : writer.decimals(s->from, s->to);
}

}  // namespace orlop::schema
