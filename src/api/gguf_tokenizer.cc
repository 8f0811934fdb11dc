// The tokenizer that a GGUF file carries in its metadata (keys tokenizer.ggml.*, as the format's
// description in the ggml project defines them).
#include <limits>

#include "api/vocabulary.h"
#include "base/error.h"

namespace orlop::api {
namespace {

// Values of tokenizer.ggml.token_type.
constexpr int64_t type_unknown = 2, type_control = 3, type_user = 4,
                  type_unused = 5, type_byte = 6;

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
  bool flag(const char* key, bool otherwise) const {
    const MetaValue* v = find(key);
    if (!v) return otherwise;
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

void read_merges(const Checkpoint& c, const std::vector<std::string>& lines, TokenizerSpec& spec) {
  spec.merges.reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    // Pieces hold no plain space; the first byte may be one only in damaged files.
    const size_t cut = lines[i].find(' ', 1);
    if (cut == std::string::npos || cut + 1 >= lines[i].size())
      fail(Status::bad_format, c.path, ": tokenizer.ggml.merges[", i, "] is no pair: \"", lines[i],
           "\"");
    spec.merges.emplace_back(lines[i].substr(0, cut), lines[i].substr(cut + 1));
  }
}

}  // namespace

bool tokenizer_spec_from_gguf(const Checkpoint& c, TokenizerSpec& spec) {
  const Keys keys(c);
  const auto* tokens = keys.list<std::string>("tokenizer.ggml.tokens", "a list of strings");
  if (!tokens || tokens->empty()) return false;
  const size_t n = tokens->size();
  if (n > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail(Status::bad_format, c.path, ": tokenizer.ggml.tokens has ", n, " entries");
  const std::string model = keys.text("tokenizer.ggml.model", "");
  const std::string pre = keys.text("tokenizer.ggml.pre", "default");
  spec.vocab = *tokens;

  bool add_bos = false;
  if (model == "gpt2") {
    spec.kind = TokenizerSpec::Kind::byte_bpe;
    tokenizer_pre_from_name(pre, spec);
    spec.add_prefix_space = keys.flag("tokenizer.ggml.add_space_prefix", false);
    // Files of these models rely on the reader to know it.
    add_bos = pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
    const auto* merges = keys.list<std::string>("tokenizer.ggml.merges", "a list of strings");
    if (!merges) fail(Status::bad_format, c.path, ": tokenizer.ggml.merges is missing");
    read_merges(c, *merges, spec);
  } else if (model == "llama") {
    spec.kind = TokenizerSpec::Kind::sentencepiece_bpe;
    spec.byte_fallback = true;
    spec.escape_spaces = true;
    // The files mean a space after every control token, not only at the start.
    if (keys.flag("tokenizer.ggml.add_space_prefix", true)) {
      spec.dummy_prefix = TokenizerSpec::Prefix::always;
      spec.strip_dummy_prefix = true;
    }
    add_bos = true;
    const auto* scores = keys.list<double>("tokenizer.ggml.scores", "a list of numbers");
    if (!scores || scores->size() != n)
      fail(Status::bad_format, c.path, ": tokenizer.ggml.scores has ",
           scores ? scores->size() : 0, " entries for ", n, " tokens");
    spec.scores.assign(scores->begin(), scores->end());
  } else {
    fail(Status::unsupported, c.path, ": tokenizer.ggml.model \"", model,
         "\" is not supported (gpt2 and llama are)");
  }

  if (const auto* types =
          keys.list<int64_t>("tokenizer.ggml.token_type", "a list of integers")) {
    if (types->size() != n)
      fail(Status::bad_format, c.path, ": tokenizer.ggml.token_type has ", types->size(),
           " entries for ", n, " tokens");
    if (model == "llama") {
      spec.is_byte.assign(n, 0);
      spec.unmergeable.assign(n, 0);
    }
    for (size_t i = 0; i < n; ++i) {
      const int64_t type = (*types)[i];
      if (type == type_byte && model == "llama") spec.is_byte[i] = 1;
      if (type == type_unused && model == "llama") spec.unmergeable[i] = 1;
      const bool special =
          type == type_control || (type == type_unknown && model == "llama");
      if (!special && type != type_user) continue;
      AddedToken added;
      added.id = static_cast<int32_t>(i);
      added.text = (*tokens)[i];
      added.special = special;
      if (!added.text.empty()) spec.added.push_back(std::move(added));
    }
  }
  spec.bos = keys.id("tokenizer.ggml.bos_token_id", n);
  spec.eos = keys.id("tokenizer.ggml.eos_token_id", n);
  spec.unk = keys.id("tokenizer.ggml.unknown_token_id", n);
  spec.pad = keys.id("tokenizer.ggml.padding_token_id", n);
  spec.add_bos = keys.flag("tokenizer.ggml.add_bos_token", add_bos) && spec.bos >= 0;
  spec.add_eos = keys.flag("tokenizer.ggml.add_eos_token", false) && spec.eos >= 0;
  return true;
}

}  // namespace orlop::api
