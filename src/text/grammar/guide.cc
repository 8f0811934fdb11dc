#include "text/grammar/guide.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "text/grammar/guide_lock.h"
#include "text/grammar/guide_machine.h"
#include "text/grammar/guide_masks.h"
#include "text/grammar/token_trie.h"

namespace orlop {
namespace {

constexpr size_t automaton_bytes = size_t{48} << 20;
constexpr size_t mask_bytes = size_t{16} << 20;
constexpr size_t nodes_a_breath = 1024;
// The widest classes of a grammar, whose plain tokens are known ahead. Others are walked.
constexpr size_t most_plain_classes = 4;
// What one mask, or the bytes of one call, may cost in steps of building states: some tens of
// milliseconds.
constexpr uint64_t most_mask_steps = 1'000'000;
constexpr uint64_t most_byte_steps = 1000;  // more, for each byte

class GuideImpl final : public Guide {
 public:
  GuideImpl(const Rules& rules, std::shared_ptr<const TokenTrieImpl> trie)
      : trie_(std::move(trie)),
        most_states_(rules.limits().max_states),
        machine_(compile_rules(rules, trie_ ? trie_->spelling() : nullptr)),
        masks_(machine_, mask_bytes) {
    if (!trie_) return;
    const auto& classes = machine_.program().classes;
    for (const uint32_t c : Machine::widest_classes(machine_.program(), most_plain_classes))
      plain_.emplace_back(c, trie_->plain(classes[c].ranges));
  }

  State start() override {
    std::lock_guard lock(lock_);
    machine_.retain(machine_.start());
    return {machine_.start()};
  }
  State copy(State s) override {
    std::lock_guard lock(lock_);
    check(s);
    machine_.retain(s.id);
    return s;
  }
  void release(State s) override {
    std::lock_guard lock(lock_);
    if (s.id != Machine::dead && machine_.refs(s.id) > 0) machine_.release(s.id);
  }
  void mask(State s, uint32_t* allowed) override;
  bool push(State& s, int32_t token) override;
  size_t push_bytes(State& s, std::string_view bytes) override;
  bool complete(State s) override {
    std::lock_guard lock(lock_);
    check(s);
    return machine_.complete(s.id);
  }
  bool exhausted(State s) override {
    std::lock_guard lock(lock_);
    check(s);
    return machine_.exhausted(s.id);
  }
  size_t bytes() const override {
    std::lock_guard lock(lock_);
    return machine_.bytes() + masks_.bytes();
  }

 private:
  // The states from the root of the tree to where a walk stands: they must not be forgotten.
  struct Walk {
    std::vector<uint32_t> path;
    size_t depth = 0;
  };
  // Keeps a state, and a walk known, while a mask is found.
  struct Hold {
    GuideImpl& guide;
    uint32_t state;
    Walk walk;
    Hold(GuideImpl& g, uint32_t s) : guide(g), state(s) {
      guide.machine_.retain(state);
      guide.walks_.push_back(&walk);
    }
    ~Hold() {
      std::erase(guide.walks_, &walk);
      guide.machine_.release(state);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
  };

  void check(State s) const {
    if (s.id == Machine::dead || s.id >= machine_.ids() || machine_.refs(s.id) == 0)
      fail(Status::invalid_argument, "guide: state ", s.id, " is not one that was given out");
  }
  void walk(const TokenTree& tree, Walk& walk, uint32_t* bits);
  void check_steps(uint64_t spent, uint64_t most) const {
    if (spent > most)
      fail(Status::invalid_argument,
           "grammar: too ambiguous: one step of the text takes more than ", most,
           " steps of its automaton");
  }
  void make_room(uint32_t pinned);

  std::shared_ptr<const TokenTrieImpl> trie_;
  size_t most_states_;
  mutable GuideLock lock_;
  Machine machine_;
  MaskCache masks_;
  std::vector<std::pair<uint32_t, std::shared_ptr<const PlainTokens>>> plain_;  // by class
  std::vector<const Walk*> walks_;
};

// Before anything new is built: frees what no one holds when there is much of it.
void GuideImpl::make_room(uint32_t pinned) {
  const auto crowded = [&](size_t quarters) {
    return machine_.bytes() > automaton_bytes / 4 * quarters ||
           machine_.built() > most_states_ / 4 * quarters;
  };
  if (!crowded(4)) return;
  std::vector<uint32_t> pins{pinned};
  for (const Walk* w : walks_)
    if (!w->path.empty())
      pins.insert(pins.end(), w->path.begin(),
                  w->path.begin() + static_cast<ptrdiff_t>(w->depth) + 1);
  machine_.collect(pins);
  if (!crowded(2)) return;
  masks_.clear();
  machine_.collect(pins);
  if (crowded(3))
    fail(Status::invalid_argument, "grammar: its automaton takes more than ", most_states_,
         " states (max_states) or ", automaton_bytes, " bytes at once");
}

void GuideImpl::walk(const TokenTree& tree, Walk& walk, uint32_t* bits) {
  const TokenTree::Node* nodes = tree.nodes.data();
  uint32_t* path = walk.path.data();
  const size_t count = tree.size();
  size_t until_breath = nodes_a_breath;
  uint64_t spent_before = machine_.spent();
  for (size_t i = 0; i < count;) {
    const TokenTree::Node& n = nodes[i];
    const uint32_t to = machine_.step(path[n.depth - 1], n.byte);
    if (machine_.spent() - spent_before > most_mask_steps)
      check_steps(machine_.spent() - spent_before, most_mask_steps);
    if (to == Machine::dead) {
      i = n.skip;
    } else {
      path[n.depth] = to;
      for (uint32_t t = n.tokens; t < nodes[i + 1].tokens; ++t) {
        const auto token = static_cast<uint32_t>(tree.tokens[t]);
        bits[token / 32] |= 1u << (token % 32);
      }
      ++i;
    }
    if (--until_breath > 0) continue;
    until_breath = nodes_a_breath;
    walk.depth = to == Machine::dead ? n.depth - 1u : n.depth;
    make_room(path[0]);
    if (lock_.wanted()) {
      const uint64_t spent = machine_.spent() - spent_before;
      lock_.breathe();
      spent_before = machine_.spent() - spent;  // what others spent is not this walk's
    }
  }
}

void GuideImpl::mask(State s, uint32_t* allowed) {
  if (!trie_) fail(Status::invalid_argument, "guide: it was made without a vocabulary");
  const auto words = static_cast<size_t>(trie_->words());
  lock_.lock_long();
  std::unique_lock lock(lock_, std::adopt_lock);
  check(s);
  if (const auto* known = masks_.find(s.id)) {
    std::copy(known->begin(), known->end(), allowed);
    return;
  }
  make_room(s.id);
  Hold hold(*this, s.id);
  std::fill(allowed, allowed + words, 0);
  const TokenTree* tree = &trie_->tree();
  for (const auto& [c, plain] : plain_) {  // the widest first
    if (!machine_.offers(s.id, c)) continue;
    const uint32_t run = machine_.run_of(s.id, c, PlainTokens::most_characters);
    if (run == Machine::not_known) continue;
    plain->add(run, allowed);
    tree = &plain->others;
    break;
  }
  hold.walk.path.assign(tree->depth + 1, s.id);
  walk(*tree, hold.walk, allowed);
  if (machine_.complete(s.id))
    for (const int32_t t : trie_->end_tokens()) {
      const auto token = static_cast<uint32_t>(t);
      allowed[token / 32] |= 1u << (token % 32);
    }
  masks_.put(s.id, {allowed, words});
}

bool GuideImpl::push(State& s, int32_t token) {
  if (!trie_) fail(Status::invalid_argument, "guide: it was made without a vocabulary");
  std::lock_guard lock(lock_);
  check(s);
  if (token < 0 || token >= trie_->vocab()) return false;
  if (trie_->is_end(token)) return machine_.complete(s.id);
  const std::string_view bytes = trie_->text(token);
  if (bytes.empty()) return false;
  make_room(s.id);
  uint32_t to = s.id;
  for (const char b : bytes) {
    to = machine_.step(to, static_cast<uint8_t>(b));
    if (to == Machine::dead) return false;
  }
  machine_.retain(to);
  machine_.release(s.id);
  s.id = to;
  return true;
}

size_t GuideImpl::push_bytes(State& s, std::string_view bytes) {
  std::lock_guard lock(lock_);
  check(s);
  size_t taken = 0;
  const uint64_t before = machine_.spent(), most = most_mask_steps + most_byte_steps * bytes.size();
  for (; taken < bytes.size(); ++taken) {
    check_steps(machine_.spent() - before, most);
    if (taken % 64 == 0) make_room(s.id);
    const uint32_t to = machine_.step(s.id, static_cast<uint8_t>(bytes[taken]));
    if (to == Machine::dead) break;
    machine_.retain(to);
    machine_.release(s.id);
    s.id = to;
  }
  return taken;
}

}  // namespace

std::shared_ptr<Guide> Guide::create(const Rules& rules, std::shared_ptr<const TokenTrie> trie) {
  auto known = std::dynamic_pointer_cast<const TokenTrieImpl>(trie);
  if (trie && !known) fail(Status::invalid_argument, "guide: a vocabulary of another kind");
  return std::make_shared<GuideImpl>(rules, std::move(known));
}

}  // namespace orlop
