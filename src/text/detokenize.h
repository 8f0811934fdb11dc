// Token ids -> text, id by id. What push() appends is final: whatever ids follow, the concatenation
// is what the reference's decode prints for all of them.
#pragma once
#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace orlop {

class Detokenizer {
 public:
  // continuation: the text goes on from a prompt, so its first space is no dummy prefix.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool continuation);
  void push(int32_t id, std::string& out);
  void finish(std::string& out);

 private:
  void show(std::string_view text, std::string& out);  // UTF-8; takes the dummy prefix off
  void end_run(std::string& out);
  void push_bytes(std::string_view bytes, std::string& out);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool sentencepiece_;
  bool strip_;  // a leading space is still to be removed
  // byte_bpe: the beginning of a code point. sentencepiece: a run of byte tokens; the reference
  // prints the whole run as U+FFFD if any of it is wrong, so none of it is final before its end.
  std::string open_;
};

}  // namespace orlop
