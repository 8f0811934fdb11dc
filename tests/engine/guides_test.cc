// Guides in the engine: states balance, faults of a guide end its own request alone, and where nothing can
// follow the text ends. What a guide allows is the sampler's and the guide's matter (tests/ops, tests/text).
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"
#include "rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

// Takes any token, `length` of them; throws where it is told to.
class Counting final : public Guide {
 public:
  explicit Counting(uint32_t length) : length_(length) {}
  State start() override { return ++held, State{0}; }
  State copy(State s) override { return ++held, s; }
  void release(State) override {
    if (busy) released_in_use = true;
    --held;
  }
  void mask(State s, uint32_t* allowed) override {
    ++masks;
    const struct Busy {
      std::atomic<int>& n;
      explicit Busy(std::atomic<int>& b) : n(b) { ++n; }
      ~Busy() { --n; }
    } here(busy);
    if (delay_ms) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    if (s.id == mask_fails_at) fail(Status::invalid_argument, "too ambiguous here");
    if (s.id == memory_fails_at) throw std::bad_alloc();
    for (int32_t w = 0; w < (vocab + 31) / 32; ++w) allowed[w] = ~0u;
  }
  bool push(State& s, int32_t) override {
    if (s.id == push_fails_at) fail(Status::invalid_argument, "too ambiguous there");
    if (s.id == refuses_at) return false;
    ++s.id;
    return true;
  }
  size_t push_bytes(State&, std::string_view) override { return 0; }
  bool complete(State) override { return false; }
  bool exhausted(State s) override { return s.id >= length_; }
  size_t bytes() const override { return 0; }

  std::atomic<int> held{0}, masks{0}, busy{0};
  std::atomic<bool> released_in_use{false};
  int delay_ms = 0;
  uint32_t mask_fails_at = ~0u, memory_fails_at = ~0u, push_fails_at = ~0u, refuses_at = ~0u;

 private:
  const uint32_t length_;
};

struct End {
  size_t tokens = 0;
  Finish finish = Finish::none;
  Status error = Status::ok;
  std::string message;
};
End read(Request& r) {
  End e;
  const Output* o;
  while (r.get(-1, &o) == Status::ok) {
    e.tokens += o->tokens.size();
    e.finish = o->finish, e.error = o->error, e.message = o->message;
  }
  return e;
}
GivenParams guided(std::shared_ptr<Guide> guide, uint32_t max_tokens = 60) {
  GivenParams g;
  g.guide = std::move(guide);
  g.max_tokens = max_tokens;
  g.temperature = 1.0;
  g.seed = 1;
  return g;
}

// The fake model knows no masks: nothing that it draws ends a text here.
std::shared_ptr<Request> send(Rig& rig, const std::vector<int32_t>& prompt, const GivenParams& g) {
  SamplingParams p = rig.resolve(prompt, g);
  p.end_tokens.clear();
  return rig.engine->submit(prompt, std::move(p), nullptr, nullptr, 0);
}

}  // namespace

TEST(a_text_ends_where_nothing_can_follow) {
  for (const bool ahead : {false, true}) {
    const auto guide = std::make_shared<Counting>(7);
    auto owner = std::make_unique<Rig>(Setup{.plan_ahead = ahead});
    Rig& rig = *owner;
    const End e = read(*send(rig, {1, 2, 3}, guided(guide)));
    CHECK(e.finish == Finish::stop && e.tokens == 7 && guide->masks == 7);
    const End shorter = read(*send(rig, {1, 2, 3}, guided(guide, 4)));
    CHECK(shorter.finish == Finish::length && shorter.tokens == 4);
    CHECK(rig.settles());
    owner.reset();  // the engine holds its requests a moment longer than they are seen
    CHECK(guide->held == 0);
  }
}

TEST(faults_of_a_guide_are_its_request_s) {
  const auto bad = [](auto&& set) {
    const auto g = std::make_shared<Counting>(20);
    set(*g);
    return g;
  };
  const auto mask = bad([](Counting& g) { g.mask_fails_at = 3; });
  const auto memory = bad([](Counting& g) { g.memory_fails_at = 3; });
  const auto push = bad([](Counting& g) { g.push_fails_at = 3; });
  const auto refuses = bad([](Counting& g) { g.refuses_at = 3; });
  const auto good = std::make_shared<Counting>(20);
  for (const bool ahead : {false, true}) {
    auto owner = std::make_unique<Rig>(Setup{.plan_ahead = ahead});
    Rig& rig = *owner;
    std::vector<std::shared_ptr<Request>> all;
    for (const auto& g : {mask, memory, push, refuses, good}) all.push_back(send(rig, {5, 6}, guided(g)));
    GivenParams free;
    free.max_tokens = 20;
    free.ignore_eos = true;
    all.push_back(rig.submit({5, 6}, free));
    const Status want[] = {Status::invalid_argument, Status::out_of_memory, Status::invalid_argument,
                           Status::internal};
    const char* words[] = {"too ambiguous here", "out of memory", "too ambiguous there", "may not come"};
    for (size_t i = 0; i < 4; ++i) {
      const End e = read(*all[i]);
      CHECK(e.finish == Finish::error && e.error == want[i]);
      CHECK(e.message.find(words[i]) != std::string::npos);
    }
    CHECK(read(*all[4]).tokens == 20 && read(*all[5]).tokens == 20);
    CHECK(rig.settles());
    all.clear();
    owner.reset();
    for (const auto& g : {mask, memory, push, refuses, good}) CHECK(g->held == 0);
  }
}

TEST(cancelled_and_preempted_samples_give_their_states_back) {
  auto owner = std::make_unique<Rig>(Setup{.max_running = 4, .pages = 9});  // too few pages for all
  Rig& rig = *owner;
  const auto guide = std::make_shared<Counting>(50);
  std::vector<std::shared_ptr<Request>> all;
  for (int32_t i = 0; i < 12; ++i) {
    GivenParams g = guided(guide);
    g.n = 1 + static_cast<uint32_t>(i % 3);
    all.push_back(send(rig, std::vector<int32_t>(20, i), g));
  }
  for (size_t i = 0; i < all.size(); i += 2) all[i]->cancel();
  for (size_t i = 0; i < all.size(); ++i) {
    const End e = read(*all[i]);
    if (i % 2)
      CHECK(e.finish == Finish::stop && e.tokens == 50 * (1 + i % 3));
    else
      CHECK(e.finish == Finish::cancelled || e.finish == Finish::stop);
  }
  CHECK(rig.engine->stats().preemptions > 0);
  CHECK(rig.settles());
  all.clear();
  owner.reset();
  CHECK(guide->held == 0);
}

// The masks' thread may be in the middle of one when the forward pass fails and ends the samples.
TEST(a_failing_step_waits_for_its_masks) {
  for (const int step : {1, 3}) {
    auto owner = std::make_unique<Rig>(Setup{});
    Rig& rig = *owner;
    rig.model.throw_at = step;
    const auto guide = std::make_shared<Counting>(20);
    guide->delay_ms = 20;
    std::shared_ptr<Request> r = send(rig, {5, 6}, guided(guide));
    const End e = read(*r);
    r.reset();
    CHECK(e.finish == Finish::error && e.error == Status::internal);
    CHECK(rig.settles());
    owner.reset();
    CHECK(guide->held == 0 && !guide->released_in_use);
  }
}

TEST(what_a_guide_cannot_go_with) {
  Rig rig({});
  GivenParams g = guided(std::make_shared<Counting>(3));
  g.ignore_eos = true;
  CHECK_THROWS(invalid_argument, "ignore_eos", rig.resolve({1}, g));
}

int main(int argc, char** argv) { return test_main(argc, argv); }
