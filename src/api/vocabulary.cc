#include "api/vocabulary.h"

#include <ctime>

#include <algorithm>

#include "base/error.h"

namespace orlop::api {
namespace {

// Control tokens that end a turn or a document, in the models' own spelling.
constexpr std::string_view known_ends[] = {"<|im_end|>",    "<|eot_id|>",     "<|eom_id|>",
                                           "<|endoftext|>", "<|end|>",        "<|eot|>",
                                           "<end_of_turn>", "<|end_of_text|>"};

constexpr std::string_view own_keys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

// What the reference passes to a template where the caller says nothing.
OrderedJson template_data(std::string_view messages_json) {
  JsonLimits limits;
  limits.max_bytes = size_t{64} << 20;
  OrderedJson given;
  try {
    given = parse_ordered_json(messages_json, "messages", limits);
  } catch (const Error& e) {
    throw Error(e.status() == Status::bad_format ? Status::invalid_argument : e.status(), e.text());
  }
  OrderedJson data = OrderedJson::object();
  if (given.is_array()) {
    data["messages"] = std::move(given);
  } else if (given.is_object()) {
    data = std::move(given);
  } else {
    fail(Status::invalid_argument, "messages: must be a JSON array or object, got ",
         given.type_name());
  }
  const auto found = data.find("messages");
  if (found == data.end() || !found->is_array())
    fail(Status::invalid_argument, "messages: the object's \"messages\" must be an array");
  if (found->empty()) fail(Status::invalid_argument, "messages: is empty");
  for (size_t i = 0; i < found->size(); ++i) {
    const OrderedJson& m = (*found)[i];
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
      fail(Status::invalid_argument, "messages[", i, "]: must be an object with a string \"role\"");
  }
  for (const std::string_view key : own_keys)
    if (data.contains(key))
      fail(Status::invalid_argument, "messages: \"", key, "\" is the model's own");
  if (!data.contains("add_generation_prompt")) data["add_generation_prompt"] = true;
  for (const char* key : {"tools", "documents"})
    if (!data.contains(key)) data[key] = nullptr;
  return data;
}

}  // namespace

std::string token_text(const TokenizerSpec& spec, int32_t id) {
  for (const AddedToken& t : spec.added)
    if (t.id == id) return t.text;
  if (id >= 0 && static_cast<size_t>(id) < spec.vocab.size())
    return spec.vocab[static_cast<size_t>(id)];
  return {};
}

std::string template_source(const Checkpoint& c) {
  if (c.kind == Checkpoint::Kind::hugging_face) return c.chat_template;
  const auto at = c.meta.find("tokenizer.chat_template");
  if (at == c.meta.end()) return {};
  const auto* text = std::get_if<std::string>(&at->second);
  if (!text) fail(Status::bad_format, c.path, ": tokenizer.chat_template is no string");
  return *text;
}

Vocabulary Vocabulary::load(const Checkpoint& c) {
  Vocabulary v;
  v.template_text_ = template_source(c);
  TokenizerSpec spec;
  if (c.kind == Checkpoint::Kind::gguf) {
    if (!read_gguf_tokenizer(c, spec)) v.missing_ = c.path + ": tokenizer.ggml.tokens";
  } else if (c.tokenizer_json.empty()) {
    v.missing_ = c.path + "/tokenizer.json";
  } else {
    spec = tokenizer_spec_from_json(c.tokenizer_json, c.tokenizer_config_json);
  }
  if (!v.missing_.empty()) return v;

  const int32_t ids[] = {spec.bos, spec.eos, spec.unk, spec.pad};
  for (size_t i = 0; i < std::size(own_keys); ++i)
    if (ids[i] >= 0) v.token_texts_.emplace_back(own_keys[i], token_text(spec, ids[i]));
  v.tokenizer_ = Tokenizer::create(std::move(spec));

  if (!v.template_text_.empty()) {
    // A template that cannot be used does not keep the model from plain prompts.
    try {
      v.template_ = ChatTemplate::parse(v.template_text_);
    } catch (const Error& e) {
      v.template_error_ = e.text();
    }
  }
  return v;
}

const Tokenizer& Vocabulary::tokenizer() const {
  if (!tokenizer_)
    fail(Status::unsupported, missing_,
         " is missing: this model takes prompts as token ids only and gives no text");
  return *tokenizer_;
}

Rendered Vocabulary::render(std::string_view messages_json) const {
  tokenizer();
  if (!template_error_.empty())
    fail(Status::unsupported,
         "messages: the model's chat template cannot be used: ", template_error_);
  if (!template_)
    fail(Status::unsupported, "messages: the model has no chat template; pass text or tokens");
  OrderedJson data = template_data(messages_json);
  std::vector<std::string> trusted;
  for (const auto& [key, text] : token_texts_) {
    data[key] = text;
    trusted.push_back(key);
  }
  return template_->render(data, trusted, static_cast<int64_t>(std::time(nullptr)));
}

std::vector<int32_t> Vocabulary::chat_tokens(std::string_view messages_json) const {
  const Rendered r = render(messages_json);
  // The template prints BOS itself where the model wants one (as the reference: no special tokens
  // are added to a rendered conversation).
  EncodeOptions options;
  options.parse_special = true;
  options.untrusted = r.untrusted;
  return tokenizer().encode(r.text, options);
}

std::vector<int32_t> Vocabulary::text_tokens(std::string_view text, bool add_special,
                                             bool parse_special) const {
  EncodeOptions options;
  options.add_special = add_special;
  options.parse_special = parse_special;
  return tokenizer().encode(text, options);
}

std::vector<int32_t> Vocabulary::end_tokens() const {
  std::vector<int32_t> ids;
  if (!tokenizer_) return ids;
  if (tokenizer_->spec().eos >= 0) ids.push_back(tokenizer_->spec().eos);
  for (const std::string_view text : known_ends) {
    const int32_t id = tokenizer_->find(text);
    if (id >= 0 && tokenizer_->is_special(id)) ids.push_back(id);
  }
  return ids;
}

std::span<const std::string_view> Vocabulary::end_texts() { return known_ends; }

}  // namespace orlop::api
