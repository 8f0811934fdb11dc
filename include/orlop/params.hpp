// params.hpp - a part of orlop.hpp: what requests and states are made of, and the completion queue.
#ifndef ORLOP_PARAMS_HPP
#define ORLOP_PARAMS_HPP

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orlop/orlop.h"
#include "orlop/result.hpp"

namespace orlop {
inline namespace cpp1 {

// `text` as a JSON string, quotes included: for building engine configurations and messages.
inline std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(u));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

// A conversation as JSON, built safely: [{"role": …, "content": …}, …]
class Chat {
 public:
  // Roles as the model's template knows them: "system", "user", "assistant", "tool".
  Chat& add(std::string_view role, std::string_view content) {
    items_ += items_.empty() ? "{\"role\":" : ",{\"role\":";
    items_ += json_quote(role) + ",\"content\":" + json_quote(content) + '}';
    return *this;
  }
  std::string json() const { return '[' + items_ + ']'; }

 private:
  std::string items_;
};

class Engine;

// One waiter for any number of requests: name it in Params::queue, with a tag for each request.
class Queue {
 public:
  Queue() = default;
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // The tag of a request with new output; nothing when the timeout passed.
  Result<std::optional<std::uint64_t>> wait(Microseconds timeout = forever) const {
    detail::CError err;
    std::uint64_t tag = 0;
    const std::int32_t status = orlop_queue_wait(handle_.get(), timeout.count(), &tag, err.out());
    if (status < 0) return err.take(status);
    return status == ORLOP_OK ? std::optional<std::uint64_t>(tag) : std::nullopt;
  }
  // Readable while the queue is not empty (poll, epoll). The queue owns it; do not read from it.
  int fd() const noexcept { return orlop_queue_fd(handle_.get()); }
  orlop_queue* get() const noexcept { return handle_.get(); }
  // Gives the queue up early; waiting then answers ORLOP_E_INVALID_ARGUMENT. Once or more.
  void close() noexcept { handle_.reset(); }

 private:
  friend class Engine;
  explicit Queue(orlop_queue* raw) : handle_(raw) {}
  detail::Handle<orlop_queue> handle_;
};

// What to generate from and how. What is left unset takes the model's generation_config, else the
// engine's default; ranges and meanings are those of orlop_generate_params.
struct Params {
  // The prompt: exactly one of the three is given.
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> tokens;
  std::optional<std::string> messages;  // JSON: [{"role": …, "content": …}, …]

  std::optional<std::uint32_t> max_tokens, min_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint64_t> seed;  // else the engine draws one; Request::info() tells it
  std::vector<orlop_logit_bias> logit_bias;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_tokens;
  // OFF, 0: of each token, N: and of the N best at its place, ALL: of the whole vocabulary.
  std::int32_t logprobs = ORLOP_LOGPROBS_OFF;
  std::int32_t prompt_logprobs = ORLOP_LOGPROBS_OFF;
  std::uint32_t n = 1;           // samples of the prompt; Output::index() tells them apart
  std::string cache_salt;        // prefixes are shared within equal salts only
  Microseconds deadline{0};      // from submission; 0: none
  std::int32_t priority = 0;     // -100 to 100, higher first
  std::int32_t guide = ORLOP_GUIDE_NONE;  // what the output must be: a kind and its source
  std::string guide_source;
  std::int32_t embedding = ORLOP_EMBEDDING_NONE;  // the prompt's, instead of generated text
  std::uint32_t flags = 0;       // ORLOP_GENERATE_ bits; SEEDED is set with `seed`
  const Queue* queue = nullptr;  // to be told of new output; must live while the call lasts
  std::uint64_t tag = 0;         // what the queue then answers

  // Continues a text.
  static Params prompt(std::string_view text) {
    Params p;
    p.text = text;
    return p;
  }
  // Continues token ids.
  static Params ids(std::vector<std::int32_t> tokens) {
    Params p;
    p.tokens = std::move(tokens);
    return p;
  }
  // Answers one user message, through the model's chat template.
  static Params chat(std::string_view user) { return chat(Chat().add("user", user)); }
  // Answers a conversation.
  static Params chat(const Chat& conversation) {
    Params p;
    p.messages = conversation.json();
    return p;
  }
  // The output must follow a guide: ORLOP_GUIDE_ and its source.
  Params& guided(std::int32_t kind, std::string_view source = {}) {
    guide = kind;
    guide_source = source;
    return *this;
  }
};

// What a state is saved from, and under which secret (orlop_state_params).
struct StateParams {
  // Saving: exactly one of the three is given. Loading: none.
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> tokens;
  std::optional<std::string> messages;
  std::string cache_salt;
  std::string key;   // 16 to 1024 bytes: signs the state, or must have signed it
  std::string path;  // a file instead of bytes
  std::uint32_t flags = 0;
  Microseconds deadline{0};
};

namespace detail {

template <class T>
void set(T& field, const std::optional<T>& value) {
  if (value) field = *value;
}

// The prompt of a C struct that has one. It points into `p`.
template <class C, class P>
void set_prompt(C& c, const P& p) {
  static const std::int32_t none = 0;  // an empty list still needs an address to count as given
  if (p.text) c.text = p.text->c_str(), c.text_len = p.text->size();
  if (p.messages) c.messages = p.messages->c_str(), c.messages_len = p.messages->size();
  if (!p.tokens) return;
  c.tokens = p.tokens->empty() ? &none : p.tokens->data();
  c.n_tokens = p.tokens->size();
}

// The C struct of `p`, pointing into `p` and into `stops`.
inline orlop_generate_params convert(const Params& p, std::vector<orlop_string>& stops) {
  orlop_generate_params c;
  orlop_generate_params_init(&c, sizeof c);
  c.flags = p.flags;
  set_prompt(c, p);
  set(c.max_tokens, p.max_tokens), set(c.min_tokens, p.min_tokens);
  set(c.temperature, p.temperature), set(c.top_p, p.top_p), set(c.min_p, p.min_p);
  set(c.top_k, p.top_k), set(c.repetition_penalty, p.repetition_penalty);
  set(c.presence_penalty, p.presence_penalty), set(c.frequency_penalty, p.frequency_penalty);
  if (p.seed) c.seed = *p.seed, c.flags |= ORLOP_GENERATE_SEEDED;
  stops.reserve(p.stop.size());
  for (const std::string& s : p.stop) stops.push_back({s.data(), s.size()});
  c.logit_bias = p.logit_bias.data(), c.n_logit_bias = p.logit_bias.size();
  c.stop = stops.data(), c.n_stop = stops.size();
  c.stop_tokens = p.stop_tokens.data(), c.n_stop_tokens = p.stop_tokens.size();
  c.logprobs = p.logprobs, c.prompt_logprobs = p.prompt_logprobs;
  c.queue = p.queue ? p.queue->get() : nullptr, c.tag = p.tag;
  c.n = p.n, c.deadline_us = p.deadline.count(), c.priority = p.priority;
  c.cache_salt = p.cache_salt.data(), c.cache_salt_len = p.cache_salt.size();
  c.guide = p.guide, c.embedding = p.embedding;
  c.guide_source = p.guide_source.data(), c.guide_source_len = p.guide_source.size();
  return c;
}

inline orlop_state_params convert(const StateParams& p) {
  orlop_state_params c{};
  c.struct_size = sizeof c;
  c.flags = p.flags;
  set_prompt(c, p);
  c.cache_salt = p.cache_salt.data(), c.cache_salt_len = p.cache_salt.size();
  c.key = p.key.data(), c.key_len = p.key.size();
  c.path = p.path.data(), c.path_len = p.path.size();
  c.deadline_us = p.deadline.count();
  return c;
}

}  // namespace detail

}  // namespace cpp1
}  // namespace orlop
#endif
