// The guides of an engine: compiled once for equal sources, the least recently used forgotten
// first.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/guide.h"
#include "text/grammar/source.h"
#include "text/tokenizer.h"

namespace orlop::api {

// The ABI's number of a kind: Error(unsupported) for one that this version does not know.
GuideKind guide_kind(int32_t number);

class Guides {
 public:
  // tokenizer may be null: then get() is Error(unsupported). It must outlive this. tool_format: of
  // tool calls whose source leaves it open.
  Guides(const Tokenizer* tokenizer, int32_t vocab, std::vector<int32_t> end_tokens,
         ToolFormat tool_format)
      : tokenizer_(tokenizer),
        vocab_(vocab),
        end_tokens_(std::move(end_tokens)),
        tool_format_(tool_format) {}

  // Compiles on the caller's thread, or takes what is there; callers with the same source wait for
  // the one who compiles it. Thread-safe. Error says what is wrong with the source.
  std::shared_ptr<Guide> get(GuideKind kind, std::string_view source);
  // What the first guide would have to wait for: the vocabulary's trie.
  void prepare() { trie(); }

 private:
  struct Entry {
    std::string key;
    std::mutex compiling;
    std::shared_ptr<Guide> guide;  // under compiling
    std::shared_ptr<Guide> kept;   // under mutex_: the same, once it is compiled
  };
  using Place = std::list<std::shared_ptr<Entry>>::iterator;

  std::shared_ptr<const TokenTrie> trie();
  std::shared_ptr<Entry> entry(const std::string& key);
  void keep(const std::shared_ptr<Entry>& entry);
  void drop(const std::shared_ptr<Entry>& entry);

  const Tokenizer* const tokenizer_;
  const int32_t vocab_;
  const std::vector<int32_t> end_tokens_;
  const ToolFormat tool_format_;
  std::mutex trie_mutex_;
  std::shared_ptr<const TokenTrie> trie_;  // from the first guide on
  std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> used_;  // the last used first
  std::unordered_map<std::string, Place> at_;
};

}  // namespace orlop::api
