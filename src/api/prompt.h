// A caller's prompt (text, token ids or messages) as checked token ids.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "api/core.h"

namespace orlop::api {

// Lists longer than any use has; larger counts are memory that was never set.
template <class T>
void check_list(const T* list, uint64_t n, const char* name, uint64_t most) {
  if (n && !list) fail(Status::invalid_argument, name, ": is NULL with a count of ", n);
  if (n > most) fail(Status::invalid_argument, name, ": a count of ", n, " is more than ", most);
}

// A caller's cache_salt. The engine's own identities begin with a NUL.
std::string salt_in(const char* data, uint64_t len);

// P: orlop_generate_params or orlop_state_params. Exactly one of the three is given; the ids are in
// the vocabulary and fit the context and the KV cache.
template <class P>
std::vector<int32_t> prompt_of(const P& p, Core& core);

extern template std::vector<int32_t> prompt_of(const orlop_generate_params&, Core&);
extern template std::vector<int32_t> prompt_of(const orlop_state_params&, Core&);

}  // namespace orlop::api
