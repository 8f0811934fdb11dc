// Token ids -> text as it can safely be shown: whole code points, stop strings cut, prefix of a
// possible stop held back. Concatenating all parts gives exactly Tokenizer::decode of the ids (up
// to a stop string).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenize.h"
#include "text/tokenizer.h"

namespace orlop {

class TextStream {
 public:
  // `stops` are UTF-8, none empty: Error(invalid_argument) names the one that is not so. The stop
  // that ends first in the text wins, of those that end together the longest; so the outcome
  // depends on the text alone, never on how it was cut into tokens.
  // continuation: the text goes on from a prompt, so its first space is no dummy prefix and stays
  // (false: the parts are those of decode, which takes it off).
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special,
             bool continuation = false);

  // Adds a token; appends what may be shown now to `out`. Returns the index of the stop string
  // that was completed (text before it is in `out`; nothing after it ever comes) or -1.
  // Held back are only: an open code point (byte_bpe), an open run of byte tokens (sentencepiece),
  // and the longest end of the text that is the beginning of a stop.
  int push(int32_t id, std::string& out);
  // A token while stops are held off (min_tokens): its text counts, but completes no stop.
  void push_unstopped(int32_t id, std::string& out);
  // The end: releases what was held back; incomplete bytes become U+FFFD as decode would print.
  void finish(std::string& out);

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // by matched bytes: the next shorter beginning that fits
    uint32_t matched = 0;
  };
  // Appends `fresh` to the pending text and releases what no stop can claim.
  int advance(std::string_view fresh, bool may_stop, std::string& out);

  Detokenizer detokenizer_;
  std::vector<Stop> stops_;
  std::string fresh_;
  std::string pending_;  // text that is the beginning of a stop so far
  bool stopped_ = false;
};

}  // namespace orlop
