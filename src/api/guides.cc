#include "api/guides.h"

#include "api/prompt.h"
#include "base/checked.h"

namespace orlop::api {
namespace {

constexpr size_t most_bytes = size_t{64} << 20;  // of all guides that are kept, sources included
constexpr size_t most_guides = 1024;

}  // namespace

GuideKind guide_kind(int32_t number) {
  static_assert(static_cast<int>(GuideKind::none) == ORLOP_GUIDE_NONE);
  static_assert(static_cast<int>(GuideKind::json_object) == ORLOP_GUIDE_JSON_OBJECT);
  static_assert(static_cast<int>(GuideKind::json_schema) == ORLOP_GUIDE_JSON_SCHEMA);
  static_assert(static_cast<int>(GuideKind::regex) == ORLOP_GUIDE_REGEX);
  static_assert(static_cast<int>(GuideKind::grammar) == ORLOP_GUIDE_GRAMMAR);
  static_assert(static_cast<int>(GuideKind::choice) == ORLOP_GUIDE_CHOICE);
  static_assert(static_cast<int>(GuideKind::tools) == ORLOP_GUIDE_TOOLS);
  if (number < ORLOP_GUIDE_NONE || number > ORLOP_GUIDE_TOOLS)
    fail(Status::unsupported, "guide: ", number, " is no kind of guide");
  return static_cast<GuideKind>(number);
}

std::shared_ptr<const TokenTrie> Guides::trie() {
  if (!tokenizer_) fail(Status::unsupported, "guide: this model has no tokenizer");
  std::lock_guard lock(trie_mutex_);
  if (!trie_) trie_ = TokenTrie::build(*tokenizer_, vocab_, end_tokens_);
  return trie_;
}

std::shared_ptr<Guides::Entry> Guides::entry(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (const auto found = at_.find(key); found != at_.end()) {
    used_.splice(used_.begin(), used_, found->second);
    return used_.front();
  }
  auto fresh = std::make_shared<Entry>();
  fresh->key = key;
  used_.push_front(fresh);
  at_.emplace(key, used_.begin());
  return fresh;
}

// Forgets others until all together are small enough, as large as they have become by now (masks
// and states come while they are used). Requests keep theirs alive.
void Guides::keep(const std::shared_ptr<Entry>& entry) {
  std::vector<std::shared_ptr<Entry>> gone;  // freed after the lock
  std::lock_guard lock(mutex_);
  entry->kept = entry->guide;
  size_t sum = 0, count = 0;
  for (auto at = used_.begin(); at != used_.end();) {
    const std::shared_ptr<Entry>& e = *at;
    const size_t bytes = e->key.size() + (e->kept ? e->kept->bytes() : 0);
    if (e == entry || (count < most_guides && sum + bytes <= most_bytes)) {
      sum += bytes;
      ++count;
      ++at;
      continue;
    }
    at_.erase(e->key);
    gone.push_back(e);
    at = used_.erase(at);
  }
}

void Guides::drop(const std::shared_ptr<Entry>& entry) {
  std::lock_guard lock(mutex_);
  const auto found = at_.find(entry->key);
  if (found == at_.end() || *found->second != entry) return;
  used_.erase(found->second);
  at_.erase(found);
}

std::shared_ptr<Guide> Guides::get(GuideKind kind, std::string_view source) {
  const std::shared_ptr<Entry> e = entry(cat(static_cast<int>(kind), ":", source));
  std::lock_guard lock(e->compiling);
  try {
    if (!e->guide) e->guide = Guide::create(guide_rules(kind, source, tool_format_), trie());
    keep(e);
  } catch (...) {
    drop(e);
    throw;
  }
  return e->guide;
}

}  // namespace orlop::api

using namespace orlop;
using namespace orlop::api;

int32_t orlop_guide_check(int32_t guide, const char* source, size_t source_len, const char* text,
                          size_t len, uint64_t* accepted, int32_t* complete, orlop_error* err) {
  return guarded(err, [&] {
    if (!accepted || !complete)
      fail(Status::invalid_argument, "accepted and complete: must not be NULL");
    *accepted = 0;
    *complete = 0;
    const GuideKind kind = guide_kind(guide);
    if (kind == GuideKind::none) fail(Status::invalid_argument, "guide: is NONE");
    const std::string_view from = utf8_in(source, source_len, "source");
    if (len && !text) fail(Status::invalid_argument, "text: is NULL");
    const std::shared_ptr<Guide> g = Guide::create(guide_rules(kind, from), nullptr);
    Guide::State state = g->start();
    *accepted = g->push_bytes(state, std::string_view(text ? text : "", len));
    *complete = *accepted == len && g->complete(state);
    g->release(state);
    return Status::ok;
  });
}
