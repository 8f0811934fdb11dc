// Which sequences compute which tokens next. Pure: sequences, pages and the time in, a plan out; no
// model, no clock of its own, no threads.
//
// Order. A sequence's rank is its arrival time, plus length_ns for each prompt token, less aging_ns
// for each level of priority; the lowest rank goes first. Ranks do not change, so whatever waits is
// overtaken only by what arrives within a bounded time after it: nothing starves. Of the running
// sequences the one of lowest rank always advances.
//
// A step. Every decode has its row; the other rows go to prompts, the shortest remainder first, but
// a quarter at least to the prompt of lowest rank. A newcomer joins when the pages for all its
// tokens are there. When pages lack, paused sequences lose theirs first, then the highest rank; a
// newcomer takes them from running ones only where its priority is higher and its rank lower.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "engine/pages.h"
#include "engine/plan.h"
#include "engine/prefix.h"

namespace orlop {

struct SchedulerLimits {
  int32_t step_tokens = 512;              // rows of one step
  int32_t max_seqs = 64;                  // sequences that hold pages
  int64_t watermark = 1;                  // pages kept free when a sequence joins others
  std::vector<int32_t> windows = {0};     // [groups] 0: every position is kept
  std::vector<int64_t> host_slots = {0};  // [groups] pages of the second tier in host memory
  int64_t aging_ns = 10'000'000'000;
  int64_t length_ns = 500'000;  // 0: first come, first served
  // A prefix hit ends at a multiple of it. Where the cache keeps tails (int8, uint4), their tile: what
  // starts inside a tile would need a tail.
  int32_t tile_tokens = 1;
  uint64_t hash_seed = 0;
  uint64_t hash_mask = ~uint64_t{0};  // tests: few bits make collisions
};

struct PlanInput {
  int64_t now_ns = 0;
  // Rows of this step at most, as the latency target allows; at least the decodes get theirs, and
  // one prefill row if there is one.
  int32_t rows = std::numeric_limits<int32_t>::max();
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, PagePools& pages);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Tokens that one sequence may have.
  int64_t capacity() const { return capacity_; }
  // A new sequence. Its tokens must fit capacity().
  void add(Sequence* sequence);
  // Forgets a sequence in whatever state and returns its pages; full ones that were computed stay
  // in the prefix cache. It is taken out of `ahead`, the plan that was made and is not committed, if
  // given: if that has begun, its page moves are made, and what it computes for the sequence goes to
  // pages that nobody reads before a later plan has filled them. Takes no memory, as drop() and
  // recall().
  void finish(Sequence* sequence, StepPlan* ahead = nullptr);
  // The same where the contents are not trusted (its step failed): nothing of it stays.
  void drop(Sequence* sequence, StepPlan* ahead = nullptr);
  // Takes back a plan that was made but will not be run, or whose results are lost, as the one before
  // it failed: its sequences wait again, and compute again what is not in the cache. After drop() of
  // the failed plan's sequences, before cache().clear().
  void recall(StepPlan& ahead);

  // May be called while one earlier plan is not committed yet: tokens which that one draws count as
  // known (Sequence::drawing). A plan with copies has to be run even if no sequence is left in it.
  void plan(StepPlan& plan, const PlanInput& input = {});
  // The planned rows are in the cache now, drawn tokens are appended. In the order of the plans.
  void commit(const StepPlan& plan);

  bool idle() const;      // nothing waits or runs
  bool runnable() const;  // something is not paused
  size_t waiting() const { return waiting_.size() + away_.size() + held_back_; }
  size_t running() const { return running_.size(); }
  PrefixCache& cache() { return cache_; }
  const PrefixCache& cache() const { return cache_; }

 private:
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return a->rank != b->rank ? a->rank < b->rank : a->arrival < b->arrival;
    }
  };
  struct Pages {  // a number for each group
    int64_t of[max_page_groups] = {};
  };
  enum class Joined { yes, no_rows, no_room, held_back };

  int32_t known(const Sequence& s) const;
  int32_t due(const Sequence& s) const;
  Pages lacking(const Sequence& s) const;
  bool shortage(const Pages& need, int64_t keep) const;
  int64_t margin() const;

  // ---- places (scheduler.cc)
  void make_node(Sequence* s);
  void wait(Sequence* s);
  void hold_back(Sequence* s, Sequence* behind, int32_t until);
  void let_go(Sequence* s);                   // out of whatever place it has
  void wake(Sequence* of, int32_t computed);  // who waits for no more than that
  void run(Sequence* s);
  void give_pages(Sequence* s);
  void preempt(Sequence* s, StepPlan& plan);
  void leave(Sequence* s, StepPlan* ahead);
  void withdraw(Sequence* s, StepPlan& plan);
  void release_copied();

  // ---- one step (step.cc)
  void look_over();
  void allot_decodes(const PlanInput& input);
  void set_prefill_rows();
  void allot_prefills();
  int32_t rows_that_fit(const Sequence& s, const Pages& kept) const;
  Pages needed_behind(const Sequence& s) const;
  Sequence* victim() const;
  bool obtain(Sequence* s, bool first, StepPlan& plan);
  void put(Sequence* s, StepPlan& plan);

  // ---- newcomers (admission.cc)
  void fork_followers(StepPlan& plan);
  bool fork(Sequence* s, StepPlan& plan);
  void admit(StepPlan& plan);
  Joined join(Sequence* s, StepPlan& plan);
  Sequence* same_prompt(const Sequence& s, int32_t limit, int32_t* until) const;
  Pages needed(const Sequence& s) const;
  bool gives_way(const Sequence& v, const Sequence& to) const;
  bool make_room(const Sequence& s, const Pages& need, StepPlan& plan);
  int32_t quarter() const;
  int32_t rows_left_for(const Sequence& s, int32_t rows) const;
  void enter(Sequence* s, StepPlan& plan);

  const SchedulerLimits limits_;
  PagePools& pages_;
  PrefixCache cache_;
  const int32_t page_tokens_;
  const int64_t capacity_;
  uint64_t arrivals_ = 0, serial_ = 0;
  using Waiting = std::set<Sequence*, Before>;
  Waiting waiting_;
  std::vector<Waiting::node_type> spare_;  // of the sequences that are not in waiting_
  std::vector<Sequence*> running_;         // by rank
  std::vector<Sequence*> away_;            // paused while they waited
  size_t held_back_ = 0;
  std::vector<int32_t> seats_;  // free ones
  int64_t caution_ = 0;         // pages kept free besides the watermark, after preemptions

  // Pages that the copies of plan `copied_serial_` read; held until it is committed or the next one
  // is made.
  struct Copied {
    int32_t group, page;
  };
  std::vector<Copied> copied_;
  uint64_t copied_serial_ = 0;

  // ---- of the plan that is being made
  int32_t decodes_ = 0;
  bool ending_ = false;  // pages will come back when what is planned is committed
  int32_t most_rows_ = 0;
  int32_t prefill_rows_ = 0;
  std::vector<Sequence*> prefills_;   // running, with a prompt to compute
  std::vector<Sequence*> computing_;  // running, whose prompt is not committed yet
  std::vector<PlanSeq> chunks_;       // planned rows of prefills_
  std::vector<Sequence*> victims_;
  Pages promised_;  // to running sequences for tokens that they have
  PrefixCache::Found found_;
};

}  // namespace orlop
