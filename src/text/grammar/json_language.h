// Regular languages over code points as deterministic automata: for what expressions cannot say
// alone, intersection and complement (a pattern beside a length, keys that no other keyword names).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/json_text.h"

namespace orlop::schema {

// What all automata of a schema may cost together.
struct Work {
  uint64_t left = 10'000'000;
  std::string where;           // the keyword that the cost is for
  void spend(uint64_t steps);  // Error(unsupported): too large together
};

class Language {
 public:
  struct Edge {
    uint32_t first, last;
    int32_t to;
  };
  struct State {
    std::vector<Edge> edges;  // sorted, disjoint; what is not there fits nothing
    uint64_t label = 0;       // not 0: a text may end here
  };

  // An expression without calls, of literals in UTF-8.
  static Language of(const Rules& rules, Expr expr, Work& work);
  static Language of_texts(const std::vector<std::string>& texts, Work& work);
  // Bit i of a label: languages[i] holds the text. all: only texts that all hold; else also those
  // that none does, so any text has a label (0 for none).
  static Language product(const std::vector<const Language*>& languages, bool all, Work& work);

  // Of texts of so many code points; most < 0: any number from least up.
  Language within(int64_t least, int64_t most, Work& work) const;
  // Texts of exactly this label, with label 1; the fewest states.
  Language only(uint64_t label, Work& work) const;
  uint64_t label_of(std::string_view text) const;
  bool holds(std::string_view text) const { return label_of(text) != 0; }
  bool empty() const;
  std::vector<uint64_t> labels() const;  // all that are reached, 0 too

  using Chars = std::function<Expr(const std::vector<CharRange>&)>;
  // `nothing` for no text. Of a language without states that lead nowhere: not of a product for
  // all.
  Expr expr(JsonText& text, Rules& rules, const Chars& chars, Work& work) const;

 private:
  void trim(Work& work);
  void minimize(Work& work);
  std::vector<State> states_;  // the first is where texts start
};

// The fewest and most code points of a text of an expression without calls (-1: no bound).
struct LengthRange {
  int64_t least, most;
};
LengthRange length_range(const Rules& rules, Expr expr);

}  // namespace orlop::schema
