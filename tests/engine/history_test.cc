// Random histories: requests of all kinds come, pause, end and are cancelled over small pools,
// while a model of the memory checks every row (page_model.h) and the books are checked every step.
// An argument gives the number of histories, a second one the first seed: history N alone is 1 N.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>

#include "page_model.h"

using namespace orlop;
using namespace orlop::test;

namespace {

struct Totals {
  uint64_t steps = 0, preemptions = 0, out = 0, in = 0, forks = 0, hits = 0, checked = 0, ends = 0,
           evicted = 0, adopted = 0, failed = 0, given_back = 0, driven_out = 0, flown = 0,
           thrown = 0;
} totals;

class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    make();
    pools_ = std::make_unique<PagePools>(pages_, page_tokens_, true);
    scheduler_ = std::make_unique<Scheduler>(limits_, *pools_);
    model_ = std::make_unique<PageModel>(*pools_, limits_, shared_tag);
  }

  // A step after another. `ahead`: the next plan is made before the one at hand is committed; `flying`: it has
  // begun as well, so that its moves are made and its rows are packed while the ends of the one before are
  // not known, and run before anything that comes later.
  void play() {
    const int64_t most_steps = 3000 + 60 * int64_t{count_} * longest_;
    StepPlan plans[2];
    std::vector<PagePools::Freed> freed[2];
    bool ahead = false, flying = false;
    int current = 0;
    for (int64_t step = 0; ended_ < count_; ++step) {
      demand(step < most_steps, "it never ends");
      ++totals.steps;
      now_ += below(30'000'000);
      StepPlan* next = ahead ? &plans[current] : nullptr;
      events(next);
      if (next && !flying && below(10) == 0) {  // the plan's moves are made early, for a state to be loaded
        model_->move(*next, freed[current]);
        model_->move(*next, pools_->freed());
        state();
      }
      if (!ahead) make_plan(plans[current], freed[current]);
      StepPlan& plan = plans[current];
      if (!flying) begin(plan, freed[current]);
      ahead = ahead_ && below(8) > 0;
      flying = false;
      if (ahead) {
        make_plan(plans[1 - current], freed[1 - current]);
        books();
        flying = flies_ && below(4) > 0;
      }
      next = ahead ? &plans[1 - current] : nullptr;
      const bool fails = failures_ && below(60) == 0;
      if (fails) model_->spoil();
      for (const PlanSeq& p : plan.seqs)
        if (p.draw) draw(static_cast<Life&>(*p.sequence));
      if (flying) {
        ++totals.flown;
        begin(*next, freed[1 - current], !fails);
      }
      if (fails) {
        ++totals.failed;
        for (const PlanSeq p : std::vector<PlanSeq>(plan.seqs)) {
          scheduler_->drop(p.sequence, next);
          end(static_cast<Life&>(*p.sequence));
        }
        if (next) scheduler_->recall(*next);
        scheduler_->cache().clear();
        demand(scheduler_->cache().host_pages() == 0, "host pages outlive clear()");
        freed[1 - current].clear();  // of the plan that is not run
        ahead = flying = false;
        continue;
      }
      scheduler_->commit(plan);
      for (const PlanSeq& p : plan.seqs) {
        Life& l = static_cast<Life&>(*p.sequence);
        if (l.over) continue;
        if (l.samples ? l.tokens.size() >= l.target : p.begin + p.rows == l.prompt_tokens) {
          totals.thrown += flying && next && find(*next, &l);
          scheduler_->finish(&l, next);
          end(l);
        }
      }
      if (ahead) current = 1 - current;
      books();
    }
    finish();
  }

  void tell() const {
    for (const auto& l : lives_)
      if (!l->over)
        std::fprintf(stderr,
                     "  arrival %d priority %d rank %ld place %d%s computed %d committed %d "
                     "of %zu+%d prompt %d lives %u left %d\n",
                     static_cast<int>(l->arrival), l->priority, static_cast<long>(l->rank / 1000),
                     static_cast<int>(l->place), l->paused ? " paused" : "", l->computed,
                     l->committed, l->tokens.size(), l->drawing, l->prompt_tokens, l->lives,
                     static_cast<int>(l->left_plan));
  }

 private:
  static constexpr uint64_t shared_tag = 77;

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool often() { return below(3) > 0; }
  bool rarely() { return below(4) == 0; }

  static bool find(const StepPlan& plan, const Sequence* s) {
    return std::any_of(plan.seqs.begin(), plan.seqs.end(), [&](const PlanSeq& p) { return p.sequence == s; });
  }

  // The rows are run at once: nothing that comes later reaches the memory before them, and their tokens
  // are there.
  void begin(StepPlan& plan, std::vector<PagePools::Freed>& freed, bool well = true) {
    model_->move(plan, freed);
    model_->pack(plan);
    well ? model_->run() : model_->spoil();
  }

  void make() {
    const int32_t sizes[] = {8, 8, 16, 16, 16, 32, 64, 128, 256};
    page_tokens_ = sizes[below(9)];
    const auto groups = static_cast<int>(1 + below(3));
    limits_.step_tokens = static_cast<int32_t>(1 + below(below(2) ? 12 : 90));
    limits_.max_seqs = static_cast<int32_t>(1 + below(9));
    limits_.watermark = below(4);
    limits_.windows.clear();
    limits_.host_slots.clear();
    const bool tier = below(2), roomy = rarely();
    for (int g = 0; g < groups; ++g) {
      limits_.windows.push_back(below(2) ? 0 : static_cast<int32_t>(2 + below(100)));
      limits_.host_slots.push_back(tier ? below(30) : 0);
      int64_t n = 2 + below(roomy ? 120 : 24);
      if (limits_.windows[g] && often()) {  // enough that it does not limit what fits
        const int64_t span = limits_.windows[g] - 1 + limits_.step_tokens;
        n = std::max(n, (span + page_tokens_ - 2) / page_tokens_ + 1);
      }
      pages_.push_back(n);
    }
    if (rarely()) limits_.length_ns = 0;
    if (rarely()) limits_.aging_ns = 1'000'000;
    if (below(2)) limits_.tile_tokens = 16;
    if (below(2)) limits_.hash_mask = static_cast<uint64_t>(below(8));
    limits_.hash_seed = random_();
    ahead_ = below(2);
    flies_ = below(2);
    failures_ = below(6) == 0;
    priorities_ = below(2);
    pauses_ = below(2);
    samples_ = below(2);
    salts_ = static_cast<int>(1 + below(3));
    count_ = static_cast<int>(1 + below(30));
    if (roomy && below(4) == 0) {  // a crowd
      limits_.max_seqs = static_cast<int32_t>(1 + below(40));
      count_ = static_cast<int>(30 + below(120));
    }
    costs_ = rarely();
    for (int i = 0; i < 3; ++i) {
      texts_[i].resize(2000);
      for (int32_t& t : texts_[i]) t = static_cast<int32_t>(below(3));
      // Texts that part from each other inside a page, or at its end.
      if (i) std::copy_n(texts_[0].begin(), below(4 * page_tokens_), texts_[i].begin());
    }
  }

  std::vector<int32_t> prompt(int64_t length) {
    const std::vector<int32_t>& text = texts_[below(3)];
    std::vector<int32_t> tokens(text.begin(), text.begin() + length);
    if (below(2)) {
      const int64_t from = below(length + 1);
      for (int64_t i = from; i < length; ++i) tokens[i] = static_cast<int32_t>(below(3));
    }
    return tokens;
  }

  void add() {
    const int64_t most = std::min<int64_t>(scheduler_->capacity(), 3 * page_tokens_ + 150);
    const auto target = 1 + below(most);
    int64_t length = 1 + below(target);
    if (rarely()) length = std::max<int64_t>(1, length / page_tokens_ * page_tokens_);
    const std::vector<int32_t> tokens = prompt(length);
    const auto salt = below(salts_);
    const bool shares = below(8) > 0, samples = below(8) > 0;
    const auto priority = priorities_ ? static_cast<int32_t>(below(5) - 2) : 0;
    const auto logits_from =
        static_cast<int32_t>(below(6) == 0 ? below(length) : std::numeric_limits<int32_t>::max());
    int copies = 1;
    if (samples_ && rarely()) copies = static_cast<int>(2 + below(3));
    Life* leader = nullptr;
    for (int i = 0; i < copies && started_ < count_; ++i) {
      lives_.push_back(std::make_unique<Life>());
      Life& l = *lives_.back();
      ++started_;
      l.tokens = tokens;
      l.prompt_tokens = static_cast<int32_t>(length);
      l.target = static_cast<size_t>(std::max(length + 1, std::min(most, target + below(5))));
      l.samples = samples || copies > 1;
      if (length >= most || !l.samples) l.samples = false, l.target = l.tokens.size();
      l.arrived_ns = now_;
      l.priority = priority;
      l.identity = salt == 0 ? "" : std::string("salt") + std::to_string(salt);
      l.shares = shares;
      l.tag = shares ? static_cast<uint64_t>(1000 + salt) : 5000 + lives_.size();
      l.seed = below(2) ? 0 : random_();
      if (i == 0 || rarely()) l.logits_from = logits_from;
      if (below(2)) l.most_tokens = static_cast<int32_t>(l.target);
      longest_ = std::max(longest_, l.target);
      l.leader = leader;
      // Samples of a private identity share no cache, but they may share their leader's pages.
      if (leader && !shares) l.tag = leader->tag;
      scheduler_->add(&l);
      if (i == 0) leader = &l;
    }
  }

  void events(StepPlan* ahead) {
    if (started_ == 0 || (started_ < count_ && below(4) == 0)) {
      for (int64_t n = 1 + below(4); n-- > 0 && started_ < count_;) add();
    }
    for (auto& l : lives_) {
      if (l->over) continue;
      if (pauses_ && below(30) == 0) l->paused = true;
      if (l->paused && below(6) == 0) l->paused = false;
      if (below(400) == 0) {  // cancelled
        scheduler_->finish(l.get(), ahead);
        end(*l);
      }
    }
    if (!ahead && below(40) == 0) state();
    if (!ahead && below(200) == 0) scheduler_->cache().clear();
    if (costs_) scheduler_->cache().set_costs(100, static_cast<double>(below(2) * 1000'000'000));
  }

  // A state from outside is loaded, or one is looked for to be saved.
  void state() {
    Life content;
    const auto pages = 1 + below(std::max<int64_t>(1, pools_->total() / 2));
    content.tokens =
        prompt(std::min<int64_t>(pages * page_tokens_, 1900 / page_tokens_ * page_tokens_));
    const auto salt = below(salts_ + 1);
    content.tag = salt == salts_ ? shared_tag : static_cast<uint64_t>(1000 + salt);
    const std::string identity = salt == salts_ ? shared_identity
                                 : salt         ? "salt" + std::to_string(salt)
                                                : "";
    const auto whole = static_cast<int32_t>(content.tokens.size());
    if (below(2)) {
      try {
        model_->fill(scheduler_->cache().adopt(identity, content.tokens), content);
        ++totals.adopted;
        demand(scheduler_->cache().match(identity, content.tokens, whole).tokens == whole ||
                   whole % limits_.tile_tokens,
               "an adopted prefix is not found");
      } catch (const Error& e) {
        demand(e.status() == Status::out_of_memory, e.what());
      }
    } else {
      model_->check(scheduler_->cache().match(identity, content.tokens, whole), content);
    }
  }

  void make_plan(StepPlan& plan, std::vector<PagePools::Freed>& freed) {
    std::vector<Life*> ran;
    for (auto& l : lives_)
      if (l->place == Sequence::Place::running) ran.push_back(l.get());
    const auto before = [](const Sequence* a, const Sequence* b) {
      return a->rank != b->rank ? a->rank < b->rank : a->arrival < b->arrival;
    };
    std::sort(ran.begin(), ran.end(), before);
    const auto due = [](const Sequence& s) {
      const auto n = static_cast<int32_t>(s.tokens.size()) + s.drawing;
      return s.drawing && n >= s.most_tokens ? 0 : n - s.computed;
    };
    Life* lowest = nullptr;
    bool ending = false;  // one that waits for its last commit may be the first
    for (Life* l : ran) {
      if (l->paused) continue;
      if (!lowest && due(*l) > 0) lowest = l;
      ending |= due(*l) == 0;
    }

    PlanInput input;
    input.now_ns = now_;
    if (rarely()) input.rows = static_cast<int32_t>(below(limits_.step_tokens + 1));
    scheduler_->plan(plan, input);
    freed.insert(freed.end(), pools_->freed().begin(), pools_->freed().end());
    pools_->freed().clear();

    copies_ = plan.copies;
    int32_t rows = 0, decodes = 0, singles = 0;
    const Sequence* first = nullptr;
    std::set<const Sequence*> once;
    for (const PlanSeq& p : plan.seqs) {
      const Sequence& s = *p.sequence;
      rows += p.rows;
      singles += p.rows == 1;
      decodes += p.rows == 1 && p.draw;
      demand(p.rows > 0 && once.insert(&s).second, "a sequence without rows, or twice");
      demand(s.place == Sequence::Place::running && !s.paused, "rows for a sequence at rest");
      demand(p.begin + p.rows == s.computed, "computed is not where the rows end");
      demand(p.draw == (s.samples &&
                        s.computed == static_cast<int32_t>(s.tokens.size()) + s.drawing - p.draw),
             "draw");
      if (p.life == 1 && p.begin == s.cached && s.cached > 0)
        totals.hits += static_cast<uint64_t>(s.cached);
      Life& l = static_cast<Life&>(*p.sequence);
      if (l.seen_life != p.life) {  // its first rows since it was admitted
        l.seen_life = p.life;
        demand(p.begin <= s.logits_from, "wanted logits lie in what was found");
        demand(p.life > 1 || p.begin == s.cached, "cached");
      }
      if (!first || before(&s, first)) first = &s;
    }
    demand(rows == plan.rows && decodes == plan.decodes, "sums");
    demand(rows <= limits_.step_tokens, "rows beyond the step");
    demand(rows <= std::max(input.rows, singles + 1), "rows beyond what was asked for");
    if (lowest)
      demand(once.count(lowest) || ending || (first && before(first, lowest)),
             "the first in rank does not advance");
    demand(!plan.seqs.empty() || !stuck(), "nothing is planned though something could run");
    totals.preemptions += static_cast<uint64_t>(plan.preemptions);
    totals.out += plan.out.size();
    totals.in += plan.in.size();
    totals.forks += plan.seats.size();
    for (const Life* l : ran)
      totals.driven_out += l->place != Sequence::Place::running && first && before(first, l);
  }

  bool stuck() const {
    for (const auto& l : lives_) {  // pages may come from one that waits for its last commit
      const auto n = static_cast<int32_t>(l->tokens.size()) + l->drawing;
      if (l->place == Sequence::Place::running && !l->paused &&
          (n == l->computed || (l->drawing && n >= l->most_tokens)))
        return false;
    }
    for (const auto& l : lives_) {
      if (l->over || l->paused) continue;
      const auto n = static_cast<int32_t>(l->tokens.size()) + l->drawing;
      if (l->place == Sequence::Place::running && (l->drawing == 0 && n > l->computed)) return true;
      if (l->place == Sequence::Place::waiting && l->left_plan == 0 && scheduler_->running() == 0)
        return true;
    }
    return false;
  }

  void draw(Life& l) {
    const uint64_t h = (l.up_to_date().back() ^ l.seed) * 0x9e3779b97f4a7c15;
    l.tokens.push_back(static_cast<int32_t>((h >> 40) % 3));
  }

  void end(Life& l) {
    demand(l.place == Sequence::Place::none && l.seat < 0, "a sequence that ended holds something");
    for (const auto& table : l.pages) demand(table.empty(), "a sequence that ended holds pages");
    l.over = true;
    ++ended_;
    ++totals.ends;
  }

  // Every reference has its holder. Pages that the last plan copies are held for a while too.
  void books() {
    std::set<int32_t> seats;
    for (int g = 0; g < pools_->groups(); ++g) {
      const PagePool& pool = pools_->group(g);
      std::vector<int32_t> holders(static_cast<size_t>(pool.total()));
      std::vector<Life*> first(holders.size());
      std::vector<int32_t> index(holders.size());
      for (auto& l : lives_) {
        const std::vector<int32_t>& table = l->pages[g];
        for (size_t i = 0; i < table.size(); ++i) {
          if (table[i] < 0) {
            totals.given_back += g == 0;
            continue;
          }
          const auto page = static_cast<size_t>(table[i]);
          ++holders[page];
          if (!first[page]) {
            first[page] = l.get();
            index[page] = static_cast<int32_t>(i);
            continue;
          }
          // Shared: at the same place, after the same tokens.
          const size_t whole = (i + 1) * static_cast<size_t>(page_tokens_);
          demand(index[page] == static_cast<int32_t>(i), "a page at two places");
          demand(l->tokens.size() >= whole && first[page]->tokens.size() >= whole &&
                     l->up_to_date()[whole - 1] == first[page]->up_to_date()[whole - 1],
                 "a page in two sequences that have nothing in common");
          demand(l->tag == first[page]->tag || l->shares, "a page of two identities");
        }
        if (g == 0 && l->seat >= 0) {
          demand(l->seat < limits_.max_seqs && seats.insert(l->seat).second, "a seat taken twice");
        }
        demand((l->seat >= 0) == (l->place == Sequence::Place::running), "who runs has a seat");
      }
      int64_t used = 0, cached = 0;
      for (size_t p = 0; p < holders.size(); ++p) {
        const auto page = static_cast<int32_t>(p);
        const int32_t more = pool.references(page) - holders[p];
        const auto copied = std::count_if(copies_.begin(), copies_.end(), [&](const PageCopy& c) {
          return c.group == g && c.from == page;
        });
        demand(more >= 0 && more <= copied, "references are not holders");
        used += pool.references(page) > 0;
        cached += pool.references(page) == 0 && pool.owner(page) >= 0;
      }
      demand(pool.used() == used && pool.cached() == cached &&
                 pool.free() == pool.total() - used - cached,
             "counts of pages");
    }
    demand(scheduler_->running() <= static_cast<size_t>(limits_.max_seqs), "too many run");
    demand(scheduler_->running() + scheduler_->waiting() == static_cast<size_t>(started_ - ended_),
           "a sequence is lost");
  }

  void finish() {
    demand(scheduler_->idle() && !scheduler_->runnable(), "not idle after all");
    demand(pools_->used_in_all() == 0, "pages are held after all");
    PrefixCache& cache = scheduler_->cache();
    demand(cache.pages() + pools_->free_in_all() == pools_->total_in_all(), "pages are lost");
    totals.evicted += cache.counters().evicted_pages;
    cache.clear();
    demand(cache.pages() == 0 && cache.host_pages() == 0 && cache.nodes() == 0,
           "nodes outlive their pages");
    totals.checked += model_->positions_checked;
  }

  std::mt19937_64 random_;
  SchedulerLimits limits_;
  std::vector<int64_t> pages_;
  int32_t page_tokens_ = 16;
  bool ahead_ = false, flies_ = false, failures_ = false, priorities_ = false, pauses_ = false, samples_ = false,
       costs_ = false;
  int salts_ = 1, count_ = 1, started_ = 0, ended_ = 0;
  size_t longest_ = 1;
  int64_t now_ = 0;
  std::vector<int32_t> texts_[3];
  std::vector<PageCopy> copies_;  // of the last plan
  std::unique_ptr<PagePools> pools_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PageModel> model_;
  std::vector<std::unique_ptr<Life>> lives_;
};

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : std::getenv("ORLOP_TEST_SHORT") ? 2000 : 5000;
  const uint64_t begin = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1;
  long failed = 0;
  for (uint64_t seed = begin; seed < begin + static_cast<uint64_t>(count); ++seed) {
    History history(seed);
    try {
      history.play();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "history %" PRIu64 ": %s\n", seed, e.what());
      history.tell();
      if (++failed == 20) break;
    }
  }
  const Totals& t = totals;
  std::printf("%" PRIu64 " steps, %" PRIu64 " ends, %" PRIu64 " positions checked, %" PRIu64
              " tokens of hits, %" PRIu64 " forks, %" PRIu64 " preemptions, %" PRIu64
              " driven out, %" PRIu64 " evicted, %" PRIu64 " out, %" PRIu64 " in, %" PRIu64
              " adopted, %" PRIu64 " failed steps, %" PRIu64
              " begun early, %" PRIu64 " rows thrown away\n",
              t.steps, t.ends, t.checked, t.hits, t.forks, t.preemptions, t.driven_out, t.evicted,
              t.out, t.in, t.adopted, t.failed, t.flown, t.thrown);
  // Histories that were too easy would show nothing.
  if (count >= 1000 && !failed)
    for (const uint64_t n : {t.hits, t.forks, t.preemptions, t.driven_out, t.evicted, t.out, t.in,
                             t.adopted, t.failed, t.given_back, t.flown, t.thrown})
      failed += n < 100;
  std::printf("%s\n", failed ? "FAILED" : "passed");
  return failed != 0;
}
