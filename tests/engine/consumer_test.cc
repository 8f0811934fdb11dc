// What the engine's users see of it: waiting lines, consumers, completion queues, many threads.
#include <poll.h>

#include <thread>

#include "rig.h"

using namespace orlop;
using namespace orlop::test;

TEST(the_waiting_line_is_bounded) {
  Setup s;
  s.max_waiting = 3;
  s.max_running = 1;
  Rig rig(s);
  rig.model.delay_us = 3000;
  GivenParams g;
  g.ignore_eos = true;
  g.max_tokens = 30;
  auto first = rig.submit({1}, g);
  while (first->info().state == RequestState::waiting) std::this_thread::yield();
  std::vector<std::shared_ptr<Request>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(rig.submit({1}, g));
  CHECK_THROWS(queue_full, "max_waiting", rig.submit({1}, g));
  waiting[1]->cancel();
  collect(*waiting[1]);
  rig.submit({1}, g)->cancel();  // there is room again
  first->cancel();
  for (auto& r : waiting) r->cancel();
  CHECK(rig.settles());
}

TEST(the_engine_s_end_ends_its_requests) {
  auto rig = std::make_unique<Rig>(Setup{});
  rig->model.delay_us = 1000;
  GivenParams g;
  g.ignore_eos = true;
  auto a = rig->submit({1, 2}, g), b = rig->submit({3}, g);
  rig->engine.reset();
  for (auto& r : {a, b}) {
    const Result got = collect(*r);
    CHECK(got.finish == Finish::error && got.error == Status::shutdown);
  }
}

TEST(one_consumer_at_a_time) {
  Rig rig(Setup{});
  rig.model.delay_us = 50000;
  GivenParams g;
  g.ignore_eos = true;
  auto r = rig.submit({1}, g);
  std::atomic<bool> inside{false};
  std::thread other([&] {
    const Output* o;
    inside = true;
    r->get(-1, &o);
  });
  while (!inside) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Output* o;
  CHECK_THROWS(busy, "orlop_get", r->get(0, &o));
  other.join();
  CHECK(r->get(0, &o) == Status::timeout);
  const int64_t begin = monotonic_ns();
  CHECK(r->get(5000, &o) == Status::timeout);
  CHECK(monotonic_ns() - begin >= 5'000'000);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    r->abandon();
  });
  bool told = false;
  try {
    while (r->get(-1, &o) == Status::ok) continue;
  } catch (const Error& e) {
    told = e.status() == Status::cancelled;
  }
  CHECK(told);
  release.join();
  CHECK(rig.settles());
}

TEST(a_queue_lists_each_request_once) {
  Rig rig(Setup{});
  auto queue = std::make_shared<CompletionQueue>();
  const auto readable = [&] {
    pollfd p{queue->fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  };
  GivenParams g;
  g.ignore_eos = true;
  g.max_tokens = 30;
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 20; ++i) requests.push_back(rig.submit({1, 2, 3}, g, queue, i));
  std::vector<size_t> got(20);
  size_t ended = 0;
  uint64_t tag;
  while (ended < 20) {
    CHECK(queue->wait(-1, &tag) == CompletionQueue::Wait::ok);
    const Output* o;
    CHECK(requests[tag]->get(0, &o) == Status::ok);  // never listed without output
    got[tag] += o->tokens.size();
    ended += o->finish != Finish::none;
  }
  for (const size_t n : got) CHECK(n == 30);
  CHECK(queue->wait(0, &tag) == CompletionQueue::Wait::timeout && !readable());
  CHECK(queue->wait(1000, &tag) == CompletionQueue::Wait::timeout);

  // What is taken or released without the queue leaves it.
  auto a = rig.submit({1}, g, queue, 100), b = rig.submit({1}, g, queue, 101);
  while (a->info().state != RequestState::done || b->info().state != RequestState::done)
    std::this_thread::yield();
  CHECK(rig.settles());
  while (!readable()) std::this_thread::yield();
  collect(*a);
  b->abandon();
  CHECK(!readable() && queue->wait(0, &tag) == CompletionQueue::Wait::timeout);

  auto c = rig.submit({1}, g, queue, 102);
  queue->close();
  CHECK(queue->wait(-1, &tag) == CompletionQueue::Wait::closed && !readable());
  CHECK(collect(*c).tokens.size() == 30);
}

TEST(submissions_from_many_threads) {
  Setup s;
  s.pages = 20;
  Rig rig(s);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t) + 100);
      for (int i = 0; i < 60; ++i) {
        const auto prompt = random_prompt(random, 20);
        GivenParams g;
        g.max_tokens = static_cast<uint32_t>(random() % 20);
        g.seed = random();
        auto r = rig.submit(prompt, g);
        if (random() % 2) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
          r->abandon();
        } else if (collect(*r).tokens != lone(prompt, r->params()).tokens) {
          ++wrong;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(rig.settles());
  CHECK(rig.engine->stats().finished == 480);
}

int main(int c, char** v) {
  return test_main(c, v);
}
