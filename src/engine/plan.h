// What one step does: plain data. The scheduler fills it, the runner executes it, commit consumes
// it.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/pages.h"

namespace orlop {

// The part of a request that planning needs. Written by the owner thread only.
struct Sequence {
  // ---- set before add()
  int64_t arrived_ns = 0;       // on the clock that plan() is told
  int32_t priority = 0;         // higher goes first; -100 to 100
  std::vector<int32_t> tokens;  // prompt, then what was generated (the engine appends)
  int32_t prompt_tokens = 0;
  bool samples = true;   // false: only the prompt is computed
  bool shares = true;    // false: takes and leaves no prefix but its own (prefix cache is off)
  std::string identity;  // pages are shared within one identity only: salt, adapter, media
  // The sequence that computes the same prompt for it (n > 1), while that one lives.
  Sequence* leader = nullptr;
  // Tokens that it will ever have, if known: with plans made ahead nothing is computed beyond.
  int32_t most_tokens = std::numeric_limits<int32_t>::max();

  // ---- the engine's while it runs
  // First position whose logits are wanted besides those of the last token (prompt_logprobs): a
  // cached prefix ends at or before it.
  int32_t logits_from = std::numeric_limits<int32_t>::max();
  bool paused = false;  // its consumer is slow: nothing is planned for it

  // ---- the scheduler's, to be read
  uint64_t arrival = 0;   // order of add()
  int64_t rank = 0;       // the lower the earlier
  int32_t computed = 0;   // positions whose keys and values lie in the cache, planned ones included
  int32_t committed = 0;  // the same without those of plans that are not committed
  int32_t cached = 0;     // prompt positions that its first admission found in the cache
  int32_t drawing = 0;    // tokens that planned steps will append and have not yet
  int32_t seat = -1;      // while it holds pages: [0, max_seqs)
  std::vector<int32_t> pages[max_page_groups];  // page tables; -1: behind the window, given back

  // ---- the scheduler's own
  enum class Place : uint8_t { none, waiting, paused, held_back, running };
  Place place = Place::none;
  uint32_t lives = 0;        // admissions so far
  int32_t rows = 0;          // of the plan that is being made
  int32_t known_pages = 0;   // pages from the first that the cache has been told of
  int32_t node = -1;         // the cache's, of the last of those
  int32_t identity_id = -1;  // the cache's
  int32_t held_pages_from[max_page_groups] =
      {};                      // first entry of each table that is not given back
  uint64_t left_plan = 0;      // the plan that took its pages away
  uint64_t asked_plan = 0;     // the plan that last looked it up in the cache
  int32_t asked_rows = 0;      // and what it had to compute then
  Sequence* behind = nullptr;  // held back until that one has computed `behind_tokens`
  int32_t behind_tokens = 0;
  size_t behind_index = 0;           // in behind->followers
  std::vector<Sequence*> followers;  // that are held back behind this one
};

// Rows of one sequence in a step: its tokens at positions [begin, begin + rows). With a plan made
// ahead the last may be a token that is not known yet.
struct PlanSeq {
  Sequence* sequence = nullptr;
  int32_t begin = 0;
  int32_t rows = 0;
  bool draw = false;  // the last row's logits give the next token
  uint32_t life = 0;  // the scheduler's: of the sequence's lives
};

// Copies, done in this order before the rows are computed: out, in, within, seats; each list in its
// own order. Freed pages are poisoned between out and in (pages.h). They are due even if no
// sequence is left in the plan.
struct PageOut {  // to the host tier
  int32_t group, page, slot;
};
struct PageIn {  // from the host tier
  int32_t group, slot, page;
};
struct PageCopy {  // copy on write
  int32_t group, from, to;
};
struct SeatCopy {
  int32_t from, to;
};

struct StepPlan {
  std::vector<PlanSeq> seqs;
  std::vector<PageOut> out;
  std::vector<PageIn> in;
  std::vector<PageCopy> copies;
  std::vector<SeatCopy> seats;
  int32_t rows = 0;         // sum of seqs' rows
  int32_t decodes = 0;      // sequences with one row that draws
  int32_t preemptions = 0;  // sequences that lost their pages for this plan
  uint64_t serial = 0;      // plans are numbered from 1

  // Nothing to compute and nothing to move.
  bool empty() const {
    return seqs.empty() && out.empty() && in.empty() && copies.empty() && seats.empty();
  }
  void clear() {
    seqs.clear();
    out.clear();
    in.clear();
    copies.clear();
    seats.clear();
    rows = decodes = preemptions = 0;
    serial = 0;
  }
};

}  // namespace orlop
