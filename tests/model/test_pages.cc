// Pages and seats on the move, and sampling a step's rows in slices, for every KV type: a sequence
// continues with the same bits wherever its cache lies.
#include <cmath>
#include <cstring>
#include <random>

#include "check.h"
#include "model/harness.h"

namespace orlop::test {
namespace {

constexpr KvType all_types[] = {KvType::f32, KvType::bf16, KvType::f16, KvType::int8,
                                KvType::uint4};

std::string folder(const char* name) { return std::string(TEST_DATA) + "/tiny/" + name; }

std::vector<int32_t> random_ids(std::mt19937& random, size_t n, int32_t vocab) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return ids;
}

std::vector<float> advance(LoadedModel& m, Sequence& seq, int32_t rows, int32_t& next_page) {
  const Slice slice{&seq, rows};
  return step(m, {&slice, 1}, next_page);
}

bool same(const std::vector<float>& a, const float* b) {
  for (float x : a)
    if (std::isnan(x)) return false;
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

// The first `cut` tokens computed, then the cache moved by `move`, then the rest: all logits are
// those of one whole step.
template <class Move>
void check_moved(LoadedModel& m, std::mt19937& random, int32_t cut, Move&& move) {
  const auto vocab = static_cast<size_t>(m.model->config().vocab);
  const std::vector<int32_t> ids =
      random_ids(random, static_cast<size_t>(cut) + 1 + random() % 20,
                 static_cast<int32_t>(vocab));
  const std::vector<float> whole = prompt_logits(m, ids);
  Sequence seq{ids, 0, {}, 1};
  int32_t next_page = 100;
  CHECK(same(advance(m, seq, cut, next_page), whole.data()));
  move(seq);
  CHECK(same(advance(m, seq, static_cast<int32_t>(ids.size()) - cut, next_page),
             &whole[static_cast<size_t>(cut) * vocab]));
}

void check_moves(const char* name, KvType kv) {
  std::mt19937 random(11);
  LoadedModel m = load(folder(name), kv == KvType::f32 ? Compute::fp32 : Compute::bf16, kv);
  Model& model = *m.model;
  const auto groups = static_cast<int>(model.groups().size());
  for (const int32_t cut : {1, 15, 16, 17, 31, 32, 40, 48, 63}) {
    // Copied within the pool, seat and all; what was there before turns into NaN.
    check_moved(m, random, cut, [&](Sequence& seq) {
      for (size_t p = 0; p < seq.pages.size(); ++p) {
        const auto to = static_cast<int32_t>(200 + p);
        for (int g = 0; g < groups; ++g) {
          model.copy_page(g, seq.pages[p], to);
          model.poison_page(g, seq.pages[p]);
        }
        seq.pages[p] = to;
      }
      model.copy_seat(seq.seat, 2);
      seq.seat = 2;
    });
    // The same with nothing waited for: what is written back is what was read, the second of what went to one place.
    check_moved(m, random, cut, [&](Sequence& seq) {
      std::vector<std::vector<unsigned char>> host;
      for (size_t p = 0; p < seq.pages.size(); ++p) {
        const auto to = static_cast<int32_t>(220 + p);
        for (int g = 0; g < groups; ++g) {
          host.emplace_back(model.groups()[static_cast<size_t>(g)].page_bytes);
          model.read_page(g, static_cast<int32_t>(299 - p), host.back().data());
          model.read_page(g, seq.pages[p], host.back().data());
          model.poison_page(g, seq.pages[p]);
          model.write_page(g, to, host.back().data());
          model.poison_page(g, static_cast<int32_t>(280 - p));
        }
        seq.pages[p] = to;
      }
      model.sync();
    });
    // Out to the host and back, to other pages, in another order. Seats stay.
    check_moved(m, random, cut, [&](Sequence& seq) {
      std::vector<std::vector<unsigned char>> host;
      for (const int32_t page : seq.pages)
        for (int g = 0; g < groups; ++g) {
          host.emplace_back(model.groups()[static_cast<size_t>(g)].page_bytes);
          model.read_page(g, page, host.back().data());
        }
      model.sync();
      for (const int32_t page : seq.pages)
        for (int g = 0; g < groups; ++g) model.poison_page(g, page);
      size_t at = host.size();
      for (size_t p = seq.pages.size(); p-- > 0;) {
        seq.pages[p] = static_cast<int32_t>(250 + p);
        for (int g = groups; g-- > 0;) model.write_page(g, seq.pages[p], host[--at].data());
      }
      model.sync();
    });
  }
}

TEST(pages_and_seats_move) {
  for (const KvType kv : all_types)
    for (const char* name : {"llama", "mistral-window"}) check_moves(name, kv);
}

// Another sequence that sits down in a seat starts at a page's border, and needs nothing of what was
// there.
TEST(seats_are_taken_over) {
  for (const KvType kv : all_types) {
    std::mt19937 random(12);
    LoadedModel m = load(folder("qwen3"), Compute::bf16, kv);
    const int32_t vocab = m.model->config().vocab;
    for (const int32_t from : {0, 16, 48}) {
      const std::vector<int32_t> ids = random_ids(random, 60, vocab);
      const std::vector<float> whole = prompt_logits(m, ids);
      Sequence seq{ids, 0, {}, 4};
      int32_t next_page = 20;
      if (from) advance(m, seq, from, next_page);
      Sequence other{random_ids(random, 37, vocab), 0, {}, 5};
      advance(m, other, 37, next_page);
      seq.seat = 5;
      CHECK(same(advance(m, seq, 60 - from, next_page),
                 &whole[static_cast<size_t>(from) * static_cast<size_t>(vocab)]));
    }
  }
}

TEST(what_cannot_be_is_refused) {
  LoadedModel m = load(folder("llama"), Compute::bf16, KvType::uint4);
  Model& model = *m.model;
  CHECK(model.seat_bytes() > 0);
  CHECK(load(folder("llama"), Compute::bf16, KvType::bf16).model->seat_bytes() == 0);
  std::vector<unsigned char> host(model.groups()[0].page_bytes);
  CHECK_THROWS(internal, "page 300", model.copy_page(0, 300, 1));
  CHECK_THROWS(internal, "page -1", model.copy_page(0, 0, -1));
  CHECK_THROWS(internal, "page 300", model.read_page(0, 300, host.data()));
  CHECK_THROWS(internal, "page 300", model.write_page(0, 300, host.data()));
  CHECK_THROWS(internal, "seat", model.copy_seat(0, 16));
  int32_t page = 0;
  Sequence seq{{1, 2, 3}, 0, {}, 16};
  CHECK_THROWS(internal, "seat 16", advance(m, seq, 3, page));
  CHECK_THROWS(internal, "were not kept", model.logits(0, 1));
  SampleResult result;
  CHECK_THROWS(internal, "sample", model.sample(&result, nullptr, 0));
}

// However the rows of a step are cut into slices, each is sampled as its own entry says.
TEST(slices_of_a_step_sample_their_own_rows) {
  LoadedModel m = load(folder("llama"), Compute::fp32, KvType::f32);
  const auto vocab = static_cast<size_t>(m.model->config().vocab);
  std::mt19937 random(13);
  constexpr int32_t rows = 45;
  const std::vector<int32_t> ids = random_ids(random, rows, static_cast<int32_t>(vocab));
  const std::vector<float> logits = prompt_logits(m, ids);
  std::vector<int32_t> at(rows), table = {0, 1, 2};
  std::vector<SampleRow> samples(rows);
  std::vector<std::vector<int32_t>> forbidden(rows);
  for (int32_t i = 0; i < rows; ++i) {
    SampleRow& s = samples[static_cast<size_t>(i)];
    at[static_cast<size_t>(i)] = i;
    s = {};
    s.top_p = s.repetition_penalty = 1;
    s.n_logprobs = i % 4;
    s.given = i % 3 ? -1 : i;
    if (i % 5 == 1) {  // the best may not come
      const float* row = &logits[static_cast<size_t>(i) * vocab];
      forbidden[static_cast<size_t>(i)] = {
          static_cast<int32_t>(std::max_element(row, row + vocab) - row)};
      s.forbidden = forbidden[static_cast<size_t>(i)].data();
      s.forbidden_n = 1;
    }
  }
  const AttentionSeq seq{.row_begin = 0, .rows = rows, .pos_begin = 0, .page_begin = 0, .seat = 0};
  Batch batch;
  batch.tokens = ids;
  batch.positions = batch.logit_rows = at;
  for (size_t g = 0; g < m.model->groups().size(); ++g)
    batch.groups[g] = {std::span(&seq, 1), table, at};
  batch.samples = samples;
  batch.max_context = rows;

  std::vector<SampleResult> results(32);
  std::vector<TokenLogprob> top(32 * 3);
  for (const int32_t slice : {32, 1, 7}) {
    m.model->forward(batch);
    for (int32_t begin = 0; begin < rows; begin += slice) {
      const int32_t count = std::min(slice, rows - begin);
      m.model->logits(begin, count);
      m.model->sample(results.data(), top.data(), 3);
      for (int32_t i = 0; i < count; ++i) {
        const auto r = static_cast<size_t>(begin + i);
        const float* row = &logits[r * vocab];
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
        int32_t best = -1;
        for (int32_t v = 0; v < static_cast<int32_t>(vocab); ++v)
          if ((best < 0 || row[v] > row[best]) &&
              (forbidden[r].empty() || forbidden[r][0] != v))
            best = v;
        const int32_t want = samples[r].given >= 0 ? samples[r].given : best;
        const SampleResult& got = results[static_cast<size_t>(i)];
        CHECK(got.token == want);
        CHECK(std::fabs(got.logprob - (row[want] - std::log(sum))) < 1e-4);
        if (samples[r].n_logprobs > 0)
          CHECK(top[static_cast<size_t>(i) * 3].token ==
                std::max_element(row, row + vocab) - row);
      }
    }
  }
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
