// A grammar compiled for a vocabulary: which tokens may come next. A byte-level pushdown automaton
// whose states are built as they are met; the tokens that a state allows are found by walking a
// trie of the vocabulary and kept.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/grammar/rules.h"
#include "text/tokenizer.h"

namespace orlop {

// Immutable, thread-safe; one a model.
class TokenTrie {
 public:
  // vocab: rows of the logits (>= the tokenizer's ids). Control tokens take no part in a text, but
  // for end_tokens, which end it.
  static std::shared_ptr<const TokenTrie> build(const Tokenizer& tokenizer, int32_t vocab,
                                                std::vector<int32_t> end_tokens);
  virtual ~TokenTrie() = default;
  virtual int32_t vocab() const = 0;
  virtual size_t bytes() const = 0;
  int32_t words() const { return (vocab() + 31) / 32; }  // of a mask
};

class Guide {
 public:
  // Where one text stands. Plain data; of this guide alone.
  struct State {
    uint32_t id = 0;
  };

  // Error(invalid_argument): no root, undefined rules, a grammar that no text matches (rules that
  // only call themselves) or none that the vocabulary can write, or a limit (named). Left recursion
  // works, indirect and hidden too. trie may be null: then only bytes can be fed (push_bytes).
  static std::shared_ptr<Guide> create(const Rules& rules, std::shared_ptr<const TokenTrie> trie);
  virtual ~Guide() = default;

  // All calls are thread-safe. Every state given out must be given back once, with release; push
  // replaces the state in place. mask, push and push_bytes throw Error(invalid_argument) where a
  // text can be read in too many ways or the states that are held pass a limit: the state is good
  // still, and the guide works on.
  virtual State start() = 0;
  virtual State copy(State) = 0;
  virtual void release(State) = 0;
  // Bit t % 32 of allowed[t / 32] says whether token t may come; end tokens may when the text is
  // complete. words() words, all written. Whatever it answers, some token is allowed, or
  // exhausted().
  virtual void mask(State, uint32_t* allowed) = 0;
  // The state after a token that the mask allows (an end token changes nothing). False, and no
  // change, for one that it does not.
  virtual bool push(State&, int32_t token) = 0;
  // How many of the bytes can be taken; the state moves that far.
  virtual size_t push_bytes(State&, std::string_view bytes) = 0;
  virtual bool complete(State) = 0;   // the text may end here
  virtual bool exhausted(State) = 0;  // it must end here: nothing can follow
  // Memory in use, states and masks included; these stay under a bound (least recently used go
  // first).
  virtual size_t bytes() const = 0;
};

}  // namespace orlop
