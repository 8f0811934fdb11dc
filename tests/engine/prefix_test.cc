// The prefix cache by itself and under the scheduler: what is found, what is kept, what goes.
#include "check.h"
#include "plan_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {
std::vector<int32_t> join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
}  // namespace

TEST(a_fully_cached_prompt_computes_one_token_at_least) {
  PlanRig rig({100}, limits());
  CHECK(rig.pass(text(64)) == 0);
  CHECK(rig.pass(text(64)) == 48);  // 64 would leave nothing to compute
  CHECK(rig.pass(text(65)) == 64);
  CHECK(rig.pass(text(63)) == 48);
  CHECK(rig.scheduler.cache().counters().lookups == 4);
  CHECK(rig.scheduler.cache().counters().hit_tokens == 48 + 64 + 48);
}

TEST(a_prompt_of_one_token) {
  PlanRig rig({100}, limits());
  CHECK(rig.pass(text(1)) == 0);
  CHECK(rig.pass(text(1)) == 0);
  CHECK(rig.scheduler.cache().pages() == 0);  // no page is full
  PlanRig tiny({100}, limits(), 1);
  CHECK(tiny.pass(text(1)) == 0);
  CHECK(tiny.pass(text(2)) == 1);
}

TEST(a_prompt_that_ends_at_a_page_s_end) {
  PlanRig rig({100}, limits());
  CHECK(rig.pass(text(16)) == 0);
  CHECK(rig.scheduler.cache().pages() == 1);
  CHECK(rig.pass(text(16)) == 0);  // its only page holds the token to compute
  CHECK(rig.pass(text(17)) == 16);
  CHECK(rig.pass(text(32)) == 16);
  CHECK(rig.pass(text(32)) == 16);
  CHECK(rig.pass(text(33)) == 32);
}

TEST(generated_tokens_are_a_prefix_too) {
  PlanRig rig({100}, limits());
  Life* a = rig.add(text(10));
  for (int i = 0; i < 25; ++i) rig.step();
  const std::vector<int32_t> dialogue = a->tokens;
  rig.finish(a);
  CHECK(dialogue.size() == 35);
  CHECK(rig.pass(join(dialogue, text(5, 3))) == 32);
}

TEST(collisions_are_told_apart) {
  for (const uint64_t mask : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    SchedulerLimits l = limits();
    l.hash_mask = mask;
    PlanRig rig({200}, l);
    for (int t = 0; t < 10; ++t) CHECK(rig.pass(text(64, t)) == 0);
    for (int t = 0; t < 10; ++t) CHECK(rig.pass(text(65, t)) == 64);
    // The same page after another parent is another prefix.
    CHECK(rig.pass(join(text(16, 11), text(49, 3))) == 0);
    std::vector<int32_t> last_differs = text(64, 4);
    last_differs[47] ^= 1;
    CHECK(rig.pass(last_differs) == 32);
  }
}

TEST(identities_are_apart) {
  SchedulerLimits l = limits();
  l.hash_mask = 0;
  PlanRig rig({100}, l);
  CHECK(rig.pass(text(64), {.identity = "a"}) == 0);
  CHECK(rig.pass(text(64), {.identity = "b"}) == 0);
  CHECK(rig.pass(text(64)) == 0);
  CHECK(rig.pass(text(64), {.identity = "a"}) == 48);
  CHECK(rig.scheduler.cache().match("c", text(64), 64).tokens == 0);
  CHECK(rig.scheduler.cache().match("b", text(64), 64).tokens == 64);
}

TEST(a_private_sequence_takes_and_leaves_nothing) {
  PlanRig rig({100}, limits());
  CHECK(rig.pass(text(64)) == 0);
  CHECK(rig.pass(text(64), {.shares = false}) == 0);
  CHECK(rig.pass(text(64), {.identity = "x", .shares = false}) == 0);
  CHECK(rig.scheduler.cache().pages() == 4 && rig.scheduler.cache().nodes() == 4);
  CHECK(rig.scheduler.cache().match("x", text(64), 64).tokens == 0);
  rig.model.fill(rig.scheduler.cache().adopt(shared_identity, text(32, 2)),
                 *rig.make(text(32, 2), {.identity = shared_identity}));
  CHECK(rig.pass(text(33, 2), {.shares = false}) == 0);
}

TEST(shared_prefixes_serve_everyone_and_go_on_under_one_s_own_name) {
  PlanRig rig({100}, limits());
  Life* content = rig.make(text(32), {.identity = shared_identity});
  rig.model.fill(rig.scheduler.cache().adopt(shared_identity, text(32)), *content);
  CHECK(rig.pass(text(64), {.identity = "a"}) == 32);
  CHECK(rig.pass(text(65), {.identity = "a"}) == 64);  // two shared pages, two of its own
  CHECK(rig.pass(text(65), {.identity = "b"}) == 32);
  // A longer prefix of one's own wins over the shared one.
  CHECK(rig.pass(text(48, 1), {.identity = "a"}) == 0);
  Life* less = rig.make(text(16, 1), {.identity = shared_identity});
  rig.model.fill(rig.scheduler.cache().adopt(shared_identity, text(16, 1)), *less);
  CHECK(rig.pass(text(49, 1), {.identity = "a"}) == 48);
  CHECK(rig.pass(text(49, 1), {.identity = "b"}) == 16);
}

TEST(hits_end_before_wanted_logits_and_at_tiles) {
  PlanRig rig({100}, limits());
  CHECK(rig.pass(text(64)) == 0);
  CHECK(rig.pass(text(64), {.logits_from = 40}) == 32);
  CHECK(rig.pass(text(64), {.logits_from = 32}) == 32);
  CHECK(rig.pass(text(64), {.logits_from = 31}) == 16);
  CHECK(rig.pass(text(64), {.logits_from = 0}) == 0);
  SchedulerLimits l = limits();
  l.tile_tokens = 16;
  PlanRig tiles({100}, l, 8);
  CHECK(tiles.pass(text(64)) == 0);
  CHECK(tiles.pass(text(57)) == 48);  // 56 lies inside a tile
}

TEST(leaves_are_evicted_before_their_parents) {
  PlanRig rig({6}, limits());
  CHECK(rig.pass(text(64)) == 0);     // four pages stay
  CHECK(rig.pass(text(48, 1)) == 0);  // takes the two free ones and evicts one
  CHECK(rig.scheduler.cache().counters().evicted_pages == 1);
  CHECK(rig.scheduler.cache().match("", text(64), 64).tokens == 48);
  CHECK(rig.pass(text(17)) == 16);  // the first page is the last used now
  CHECK(rig.pass(text(64, 2)) == 0);
  CHECK(rig.scheduler.cache().match("", text(64), 64).tokens == 16);
}

TEST(what_is_in_use_is_not_evicted) {
  PlanRig rig({6}, limits());
  CHECK(rig.pass(text(64)) == 0);
  Life* user = rig.add(text(49));
  rig.step();
  CHECK(user->cached == 48 && user->committed == 49);
  for (int t = 1; t < 6; ++t) CHECK(rig.pass(text(32, t)) == 0);  // pushes all else out
  CHECK(rig.scheduler.cache().counters().evicted_pages > 4);
  for (int i = 0; i < 10; ++i) rig.step();  // the model checks what its rows see
  rig.finish(user);
  CHECK(rig.pass(text(49)) == 48);
  CHECK(rig.pools.used_in_all() == 0);
}

TEST(a_cancelled_prefill_leaves_its_whole_pages) {
  PlanRig rig({100}, limits(40));
  Life* a = rig.add(text(200));
  rig.step();
  rig.step();
  CHECK(a->committed == 80);
  rig.finish(a);
  CHECK(rig.pools.used_in_all() == 0 && rig.scheduler.cache().pages() == 5);
  CHECK(rig.pass(text(200)) == 80);
}

TEST(a_plan_that_is_not_committed_leaves_nothing) {
  PlanRig rig({100}, limits());
  Life* a = rig.add(text(64));
  StepPlan ahead;
  rig.plan(ahead);
  CHECK(a->computed == 64 && a->committed == 0);
  rig.finish(a, &ahead);
  CHECK(ahead.seqs.empty() && ahead.rows == 0);
  CHECK(rig.scheduler.cache().pages() == 0 && rig.pools.free_in_all() == 100);
}

TEST(windows_need_only_what_they_see) {
  SchedulerLimits l = limits();
  l.windows = {0, 20};
  PlanRig rig({100, 100}, l);
  CHECK(rig.pass(text(160)) == 0);
  CHECK(rig.pass(text(161)) == 160);
  const PrefixCache::Hit hit = rig.scheduler.cache().match("", text(160), 160);
  CHECK(hit.tokens == 160 && hit.pages[0][0] >= 0);
  CHECK(hit.pages[1][7] == -1 && hit.pages[1][8] >= 0);  // positions 141 and on
  // Without a window's pages there is no hit, though the full group has all of its own.
  SchedulerLimits few = limits();
  few.windows = {0, 20};
  PlanRig small({100, 10}, few);
  CHECK(small.pass(text(160)) == 0);
  CHECK(small.pass(text(160, 1)) == 0);
  CHECK(small.scheduler.cache().match("", text(160), 160).tokens == 0);
  CHECK(small.pass(text(160)) == 0);
}

TEST(evicted_pages_come_back_from_the_host) {
  SchedulerLimits l = limits();
  l.host_slots = {12};
  PlanRig rig({6}, l);
  CHECK(rig.pass(text(80)) == 0);
  CHECK(rig.pass(text(80, 1)) == 0);
  const PrefixCache::Counters& c = rig.scheduler.cache().counters();
  CHECK(c.host_out == 4 && c.host_in == 0);  // five cached, one free, five taken
  CHECK(rig.scheduler.cache().host_pages() == 4);
  CHECK(rig.scheduler.cache().match("", text(80), 80).tokens == 16);  // on the device
  CHECK(rig.pass(text(81)) == 80);
  CHECK(c.host_in == 4);
  // What has a slot goes without another copy.
  const uint64_t out = c.host_out;
  CHECK(rig.pass(text(81, 1)) == 80);
  CHECK(rig.pass(text(81)) == 80);
  CHECK(rig.pass(text(81, 1)) == 80);
  CHECK(c.host_out <= out + 6);
}

TEST(the_host_tier_forgets_its_oldest) {
  SchedulerLimits l = limits();
  l.host_slots = {4};
  PlanRig rig({4}, l);
  for (int t = 0; t < 6; ++t) CHECK(rig.pass(text(60, t)) == 0);
  CHECK(rig.scheduler.cache().host_pages() == 4);
  // Three on the device, three in the host, and the rest is gone.
  CHECK(rig.scheduler.cache().nodes() <= 8);
  CHECK(rig.pass(text(60, 4)) == 48);
  CHECK(rig.pass(text(60, 0)) == 0);
}

TEST(a_slot_that_a_plan_reads_is_not_written_by_it) {
  // Every page that comes in drives one out to a tier that is full already.
  SchedulerLimits l = limits();
  l.host_slots = {4};
  PlanRig rig({5}, l);
  for (int round = 0; round < 5; ++round)
    for (int t = 0; t < 2; ++t) rig.pass(text(49, t));  // the model checks the contents
  CHECK(rig.scheduler.cache().counters().host_in > 5);
}

TEST(copying_must_be_cheaper_than_computing) {
  SchedulerLimits l = limits();
  l.host_slots = {8};
  PlanRig rig({4}, l);
  rig.scheduler.cache().set_costs(1000, 9000);  // two copies for 16 tokens
  rig.pass(text(60, 0));
  rig.pass(text(60, 1));
  CHECK(rig.scheduler.cache().counters().host_out == 0);
  rig.scheduler.cache().set_costs(1000, 7000);
  rig.pass(text(60, 2));
  CHECK(rig.scheduler.cache().counters().host_out == 3);
}

TEST(adopted_prefixes_are_found) {
  PlanRig rig({10}, limits());
  PrefixCache& cache = rig.scheduler.cache();
  CHECK_THROWS(invalid_argument, "whole pages", cache.adopt("", text(17)));
  CHECK(cache.adopt("", {}).tokens == 0);
  const PrefixCache::Hit hit = cache.adopt("", text(64));
  CHECK(hit.tokens == 64 && hit.pages[0].size() == 4 && hit.pages[0][0] >= 0);
  rig.model.fill(hit, *rig.make(text(64)));
  CHECK(cache.pages() == 4);
  // What is there is kept.
  const PrefixCache::Hit more = cache.adopt("", text(96));
  CHECK(more.pages[0][3] == -1 && more.pages[0][4] >= 0);
  rig.model.fill(more, *rig.make(text(96)));
  CHECK(rig.pass(text(97)) == 96);
  // A whole pool's worth evicts all else; more than that changes nothing.
  CHECK_THROWS(out_of_memory, "too few", cache.adopt("", text(176, 1)));
  CHECK(cache.match("", text(96), 96).tokens == 96 && cache.nodes() == 6);
  rig.model.fill(cache.adopt("", text(160, 1)), *rig.make(text(160, 1)));
  CHECK(cache.match("", text(96), 96).tokens == 0);
  CHECK(cache.match("", text(160, 1), 160).tokens == 160);
}

TEST(adopting_spares_running_sequences_and_its_own_parents) {
  PlanRig rig({10}, limits());
  PrefixCache& cache = rig.scheduler.cache();
  rig.pass(text(64));
  Life* a = rig.add(text(40, 1));
  rig.step();  // three pages
  CHECK_THROWS(out_of_memory, "too few", cache.adopt("", text(128)));
  rig.model.fill(cache.adopt("", text(112)), *rig.make(text(112)));
  rig.model.check(cache.match("", text(112), 112), *rig.make(text(112)));
  rig.step();
  CHECK(a->committed == 41);
  rig.finish(a);
  CHECK(rig.pass(text(113)) == 112);
}

TEST(adopted_pages_are_not_poisoned_afterwards) {
  PlanRig rig({4}, limits());
  Life* a = rig.add(text(40, 1));
  rig.step();
  rig.finish(a);  // its last page lost its holder: poisoned before the next step
  CHECK(!rig.pools.freed().empty());
  rig.model.fill(rig.scheduler.cache().adopt("", text(48)), *rig.make(text(48)));
  CHECK(rig.pass(text(49)) == 48);
}

TEST(windows_of_adopted_prefixes) {
  SchedulerLimits l = limits();
  l.windows = {0, 20};
  PlanRig rig({20, 20}, l);
  const PrefixCache::Hit hit = rig.scheduler.cache().adopt("", text(160));
  CHECK(hit.pages[1][7] == -1 && hit.pages[1][8] >= 0 && hit.pages[1][9] >= 0);
  CHECK(rig.pools.group(1).cached() == 2 && rig.pools.group(0).cached() == 10);
  rig.model.fill(hit, *rig.make(text(160)));
  CHECK(rig.pass(text(161)) == 160);
}

TEST(clear_forgets_all_but_what_runs) {
  SchedulerLimits l = limits();
  l.host_slots = {8};
  PlanRig rig({8}, l);
  rig.pass(text(80));
  rig.pass(text(80, 1));
  Life* a = rig.add(text(40, 2));
  rig.step();
  rig.scheduler.cache().clear();
  CHECK(rig.scheduler.cache().pages() == 0 && rig.scheduler.cache().host_pages() == 0);
  CHECK(rig.scheduler.cache().nodes() == 2);
  rig.step();
  rig.finish(a);
  CHECK(rig.scheduler.cache().match("", text(40, 2), 40).tokens == 32);
  rig.scheduler.cache().clear();
  CHECK(rig.scheduler.cache().nodes() == 0 && rig.pools.free_in_all() == 8);
}

TEST(nodes_are_bounded) {
  SchedulerLimits l = limits();
  l.host_slots = {6};
  PlanRig rig({12}, l);
  for (int t = 0; t < 300; ++t) {
    rig.pass(text(50 + t % 90, t % 37));
    CHECK(rig.scheduler.cache().nodes() <= 18);
  }
}

int main(int c, char** v) {
  return orlop::test::test_main(c, v);
}
