#include "api/prompt.h"

namespace orlop::api {

std::string salt_in(const char* data, uint64_t len) {
  const std::string_view salt = utf8_in(data, len, "cache_salt");
  if (salt.size() > max_salt_bytes)
    fail(Status::invalid_argument, "cache_salt: at most ", max_salt_bytes, " bytes, got ",
         salt.size());
  if (salt.starts_with('\0'))
    fail(Status::invalid_argument, "cache_salt: may not begin with a NUL");
  return std::string(salt);
}

template <class P>
std::vector<int32_t> prompt_of(const P& p, Core& core) {
  const int given =
      (p.text || p.text_len) + (p.tokens || p.n_tokens) + (p.messages || p.messages_len);
  if (given != 1)
    fail(Status::invalid_argument, "prompt: exactly one of text, tokens and messages, got ", given);
  std::vector<int32_t> ids;
  if (p.messages || p.messages_len) {
    ids = core.vocabulary().chat_tokens(utf8_in(p.messages, p.messages_len, "messages"));
  } else if (p.text || p.text_len) {
    ids = core.vocabulary().text_tokens(utf8_in(p.text, p.text_len, "text"),
                                        !(p.flags & ORLOP_GENERATE_NO_BOS),
                                        !(p.flags & ORLOP_GENERATE_PLAIN));
  } else {
    check_list(p.tokens, p.n_tokens, "tokens", uint64_t{1} << 31);
    // Before copying: the count says all.
    if (p.n_tokens > static_cast<uint64_t>(core.max_context()))
      fail(Status::context_overflow, "prompt: ", p.n_tokens,
           " tokens are more than the context of ", core.max_context());
    if (p.n_tokens) ids.assign(p.tokens, p.tokens + p.n_tokens);
  }
  if (ids.empty()) fail(Status::invalid_argument, "prompt: is empty (no tokens)");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= core.vocab())
      fail(Status::invalid_argument, "tokens[", i, "]: ", ids[i], " is outside the vocabulary of ",
           core.vocab());
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t capacity = core.engine().capacity();
  if (n > core.max_context())
    fail(Status::context_overflow, "prompt: ", n, " tokens are more than the context of ",
         core.max_context());
  if (n > capacity)
    fail(Status::context_overflow, "prompt: ", n, " tokens are more than the ", capacity,
         " that the KV cache holds (kv_bytes)");
  return ids;
}

template std::vector<int32_t> prompt_of(const orlop_generate_params&, Core&);
template std::vector<int32_t> prompt_of(const orlop_state_params&, Core&);

}  // namespace orlop::api
