// A model's text side: tokenizer, chat template, the texts of its control tokens. Any of it may be
// missing from a checkpoint; then the calls that need it say what is missing.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace orlop::api {

class Vocabulary {
 public:
  // Error(bad_format | unsupported) for tokenizer files that are wrong; absent ones are no error.
  static Vocabulary load(const Checkpoint& checkpoint);

  const Tokenizer* tokenizer_or_null() const { return tokenizer_.get(); }
  // Error(unsupported) names the file that is missing.
  const Tokenizer& tokenizer() const;
  bool has_template() const { return template_ != nullptr || !template_error_.empty(); }

  // The template's source, also of one that cannot be used; "" without one.
  const std::string& template_text() const { return template_text_; }

  // Messages as in orlop_generate_params: an array, or an object with more variables.
  Rendered render(std::string_view messages_json) const;
  std::vector<int32_t> chat_tokens(std::string_view messages_json) const;
  std::vector<int32_t> text_tokens(std::string_view text, bool add_special,
                                   bool parse_special) const;

  // The end-of-turn ids that the vocabulary itself knows, besides those of the configuration.
  std::vector<int32_t> end_tokens() const;
  // The texts of control tokens that end a turn or a document, of all models known.
  static std::span<const std::string_view> end_texts();

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::string template_text_;
  std::string template_error_;  // why the template cannot be used
  std::string missing_;         // the file or key without which there is no tokenizer
  std::vector<std::pair<std::string, std::string>> token_texts_;  // "bos_token" -> "<s>" …
};

// GGUF metadata -> spec; false if the file holds no tokenizer.
bool read_gguf_tokenizer(const Checkpoint& checkpoint, TokenizerSpec& spec);
// The template's source, or "".
std::string template_source(const Checkpoint& checkpoint);
// A control token's own text, or "".
std::string token_text(const TokenizerSpec& spec, int32_t id);

}  // namespace orlop::api
