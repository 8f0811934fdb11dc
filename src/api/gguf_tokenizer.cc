// The tokenizer that a GGUF file carries in its metadata (keys tokenizer.ggml.*, as the format's
// description in the ggml project defines them).
#include <limits>
#include <optional>

#include "api/vocabulary.h"
#include "base/checked.h"

namespace orlop::api {
namespace {

class Keys {
 public:
  explicit Keys(const Checkpoint& c) : c_(c) {}

  const MetaValue* find(const char* key) const {
    const auto at = c_.meta.find(key);
    return at == c_.meta.end() ? nullptr : &at->second;
  }
  std::string text(const char* key, const char* otherwise) const {
    const MetaValue* v = find(key);
    if (!v) return otherwise;
    if (const auto* s = std::get_if<std::string>(v)) return *s;
    wrong(key, "a string");
  }
  std::optional<bool> flag(const char* key) const {
    const MetaValue* v = find(key);
    if (!v) return std::nullopt;
    if (const auto* b = std::get_if<bool>(v)) return *b;
    wrong(key, "a truth value");
  }
  int32_t id(const char* key, size_t vocab) const {
    const MetaValue* v = find(key);
    if (!v) return -1;
    int64_t n;
    if (const auto* u = std::get_if<uint64_t>(v))
      n = *u > std::numeric_limits<int32_t>::max() ? std::numeric_limits<int64_t>::max()
                                                   : static_cast<int64_t>(*u);
    else if (const auto* i = std::get_if<int64_t>(v))
      n = *i;
    else
      wrong(key, "an integer");
    if (n < 0) return -1;
    if (static_cast<uint64_t>(n) >= vocab)
      fail(Status::bad_format, c_.path, ": ", key, ": ", n, " is outside the vocabulary of ",
           vocab);
    return static_cast<int32_t>(n);
  }
  template <class T>
  const std::vector<T>* list(const char* key, const char* what) const {
    const MetaValue* v = find(key);
    if (!v) return nullptr;
    if (const auto* a = std::get_if<MetaArray>(v)) {
      if (const auto* l = std::get_if<std::vector<T>>(a)) return l;
      // An empty array carries no useful type.
      if (std::visit([](const auto& l) { return l.empty(); }, *a)) return nullptr;
    }
    wrong(key, what);
  }
  [[noreturn]] void wrong(const char* key, const char* what) const {
    fail(Status::bad_format, c_.path, ": ", key, " is not ", what);
  }

 private:
  const Checkpoint& c_;
};

}  // namespace

bool read_gguf_tokenizer(const Checkpoint& c, TokenizerSpec& spec) {
  const Keys keys(c);
  const auto* tokens = keys.list<std::string>("tokenizer.ggml.tokens", "a list of strings");
  if (!tokens || tokens->empty()) return false;
  const size_t n = tokens->size();
  GgufTokenizer parts;
  parts.tokens = *tokens;
  parts.model = keys.text("tokenizer.ggml.model", "");
  parts.pre = keys.text("tokenizer.ggml.pre", "default");
  if (const auto* l = keys.list<std::string>("tokenizer.ggml.merges", "a list of strings"))
    parts.merges = *l;
  if (const auto* l = keys.list<double>("tokenizer.ggml.scores", "a list of numbers"))
    parts.scores.assign(l->begin(), l->end());
  if (const auto* l = keys.list<int64_t>("tokenizer.ggml.token_type", "a list of integers")) {
    parts.token_types.reserve(l->size());
    for (const int64_t type : *l)
      parts.token_types.push_back(checked_cast<int32_t>(type, "tokenizer.ggml.token_type"));
  }
  parts.bos = keys.id("tokenizer.ggml.bos_token_id", n);
  parts.eos = keys.id("tokenizer.ggml.eos_token_id", n);
  parts.unk = keys.id("tokenizer.ggml.unknown_token_id", n);
  parts.pad = keys.id("tokenizer.ggml.padding_token_id", n);
  parts.add_bos = keys.flag("tokenizer.ggml.add_bos_token");
  parts.add_eos = keys.flag("tokenizer.ggml.add_eos_token");
  parts.add_space_prefix = keys.flag("tokenizer.ggml.add_space_prefix");
  try {
    spec = tokenizer_spec_from_gguf(std::move(parts));
  } catch (const Error& e) {
    throw Error(e.status(), cat(c.path, ": ", e.text()));
  }
  return true;
}

}  // namespace orlop::api
