// orlop_tokenize, orlop_detokenize, orlop_chat_*.
#include <algorithm>

#include "api/core.h"

using namespace orlop;
using namespace orlop::api;

namespace {

void check_flags(uint32_t flags, uint32_t known) {
  if (flags & ~known) fail(Status::unsupported, "flags: bits ", flags & ~known, " are unknown");
}

Status copy_ids(const std::vector<int32_t>& from, int32_t* ids, size_t cap, size_t* n) {
  *n = from.size();
  std::copy_n(from.begin(), std::min(cap, from.size()), ids);
  return Status::ok;
}

void check_ids_out(const int32_t* ids, size_t cap, size_t* n) {
  if (!n) fail(Status::invalid_argument, "n: is NULL");
  *n = 0;
  if (cap && !ids) fail(Status::invalid_argument, "ids: is NULL with a capacity of ", cap);
}

}  // namespace

int32_t orlop_tokenize(orlop_engine* engine, const char* text, size_t len, uint32_t flags,
                       int32_t* ids, size_t cap, size_t* n, orlop_error* err) {
  return guarded(err, [&] {
    check_ids_out(ids, cap, n);
    const Hold<orlop_engine> e(engine, "engine");
    check_flags(flags, ORLOP_TOKENIZE_ADD_SPECIAL | ORLOP_TOKENIZE_PARSE_SPECIAL);
    return copy_ids(e->core()->vocabulary().text_tokens(utf8_in(text, len, "text"),
                                                        flags & ORLOP_TOKENIZE_ADD_SPECIAL,
                                                        flags & ORLOP_TOKENIZE_PARSE_SPECIAL),
                    ids, cap, n);
  });
}

int32_t orlop_detokenize(orlop_engine* engine, const int32_t* ids, size_t n, uint32_t flags,
                         orlop_buffer** text, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(text, "text");
    const Hold<orlop_engine> e(engine, "engine");
    check_flags(flags, ORLOP_DETOKENIZE_SKIP_SPECIAL | ORLOP_DETOKENIZE_BYTES);
    if (n && !ids) fail(Status::invalid_argument, "ids: is NULL with a count of ", n);
    const Tokenizer& tokenizer = e->core()->vocabulary().tokenizer();
    for (size_t i = 0; i < n; ++i)
      if (ids[i] < 0 || ids[i] >= tokenizer.vocab_size())
        fail(Status::invalid_argument, "ids[", i, "]: ", ids[i],
             " is outside the tokenizer's vocabulary of ", tokenizer.vocab_size());
    const bool skip_special = flags & ORLOP_DETOKENIZE_SKIP_SPECIAL;
    if (flags & ORLOP_DETOKENIZE_BYTES) {
      std::string bytes;
      for (size_t i = 0; i < n; ++i) bytes += tokenizer.token_bytes(ids[i], skip_special);
      *text = new_buffer(std::move(bytes));
    } else {
      *text = new_buffer(tokenizer.decode({ids, n}, skip_special));
    }
    return Status::ok;
  });
}

int32_t orlop_chat_render(orlop_engine* engine, const char* json, size_t len, orlop_buffer** text,
                          orlop_error* err) {
  return guarded(err, [&] {
    clear_out(text, "text");
    const Hold<orlop_engine> e(engine, "engine");
    *text = new_buffer(e->core()->vocabulary().render(utf8_in(json, len, "messages")).text);
    return Status::ok;
  });
}

int32_t orlop_chat_tokenize(orlop_engine* engine, const char* json, size_t len, int32_t* ids,
                            size_t cap, size_t* n, orlop_error* err) {
  return guarded(err, [&] {
    check_ids_out(ids, cap, n);
    const Hold<orlop_engine> e(engine, "engine");
    return copy_ids(e->core()->vocabulary().chat_tokens(utf8_in(json, len, "messages")), ids, cap,
                    n);
  });
}
