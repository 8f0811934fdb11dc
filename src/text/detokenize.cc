#include "text/detokenize.h"

#include "text/utf8.h"

namespace orlop {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool continuation)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      sentencepiece_(tokenizer.spec().kind == TokenizerSpec::Kind::sentencepiece_bpe),
      strip_(sentencepiece_ && tokenizer.spec().strip_dummy_prefix && !continuation) {}

void Detokenizer::show(std::string_view text, std::string& out) {
  if (strip_ && !text.empty()) {
    strip_ = false;
    if (text[0] == ' ') text.remove_prefix(1);
  }
  out += text;
}

void Detokenizer::end_run(std::string& out) {
  if (open_.empty()) return;
  if (utf8_valid_prefix(open_) == open_.size()) {
    show(open_, out);
  } else {
    for (size_t i = 0; i < open_.size(); ++i) show(utf8_replacement, out);
  }
  open_.clear();
}

void Detokenizer::push_bytes(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!open_.empty()) {
    joined = std::move(open_);
    joined += bytes;
    bytes = joined;
    open_.clear();
  }
  for (size_t pos = 0; pos < bytes.size();) {
    size_t end = pos;
    while (end < bytes.size() && static_cast<uint8_t>(bytes[end]) < 0x80) ++end;
    if (end == pos) {
      const Utf8Step step = utf8_step(bytes, pos);
      end = pos + step.length;
      if (step.cut) {
        open_ = bytes.substr(pos);
        return;
      }
      if (!step.whole) {
        out += utf8_replacement;
        pos = end;
        continue;
      }
    }
    out += bytes.substr(pos, end - pos);
    pos = end;
  }
}

void Detokenizer::push(int32_t id, std::string& out) {
  if (id < 0 || id >= tokenizer_.vocab_size()) return;
  if (skip_special_ && tokenizer_.is_special(id)) return;
  const std::string_view bytes = tokenizer_.token_bytes(id, false);
  if (!sentencepiece_) return push_bytes(bytes, out);
  if (tokenizer_.spec().byte_fallback && tokenizer_.spec().is_byte[static_cast<size_t>(id)]) {
    open_ += bytes;
    return;
  }
  end_run(out);
  show(bytes, out);
}

void Detokenizer::finish(std::string& out) {
  if (sentencepiece_) return end_run(out);
  // The maximal subpart that never became a code point: one U+FFFD.
  if (!open_.empty()) out += utf8_replacement;
  open_.clear();
}

}  // namespace orlop
