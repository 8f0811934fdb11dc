// Token ids -> text as it can safely be shown: whole code points, stop strings cut, prefix of a
// possible stop held back. Concatenating all parts gives exactly Tokenizer::decode of the ids (up
// to a stop string).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace orlop {

class TextStream {
 public:
  // `stops` are UTF-8, none empty. context: the last prompt ids matter only for the dummy prefix
  // (a continuation never loses a leading space).
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special);

  // Adds a token; appends what may be shown now to `out`. Returns the index of the stop string
  // that was completed (text before it is in `out`; nothing after it ever comes) or -1.
  int push(int32_t id, std::string& out);
  // A token while stops are held off (min_tokens): its text counts, but completes no stop.
  void push_unstopped(int32_t id, std::string& out);
  // The end: releases what was held back; incomplete bytes become U+FFFD as decode would print.
  void finish(std::string& out);

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  bool skip_special_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace orlop
