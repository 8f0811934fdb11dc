// Every op of the CUDA backend against the reference on the CPU, on random shapes. Without a GPU it is
// skipped, saying why.
#include <cstdio>

#include "backend/cpu/linear.h"
#include "backend/cpu/ops.h"
#include "base/half.h"
#include "gpu_layer.h"
#include "matmul_rig.h"

using namespace orlop;
using namespace orlop::test;

namespace {

std::vector<float> product(const GpuLayer& l, const std::vector<float>& x, int64_t m, const std::vector<float>* bias,
                           const std::vector<float>* start) {
  const int64_t n = l.desc.n();
  On<float> input(x), out(start ? *start : std::vector<float>(static_cast<size_t>(m * n), 7.0f));
  On<float> device_bias(bias ? *bias : std::vector<float>(1));
  On<unsigned char> work(gpu().exec().kernels->matmul_workspace(l.desc, m), 0xff);
  gpu().exec().kernels->matmul(gpu().exec(), {&l.desc, l.packed.at(), input.at(), l.desc.k, out.at(), n, m,
                                              bias ? device_bias.at() : nullptr, start != nullptr, work.at()});
  work.read();
  return out.read();
}

void products(Compute compute, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const FileType type = type_at(static_cast<int>(pick(0, ggml_type_count - 1)));
    const int64_t block = info(type).block_elems;
    const int64_t k = block == 1 ? pick(1, 700) : block * pick(1, 2048 / block);
    const bool gated = round % 4 == 0;
    const int64_t n = pick(1, 150), m = round % 3 ? pick(1, 9) : pick(10, 90);
    std::vector<std::pair<FileType, int64_t>> parts = {{type, n}};
    if (gated) parts.push_back({type, n});
    const Layer layer(k, parts, compute, gated ? Glu::silu : Glu::none, round % 5 == 0);
    const GpuLayer on_gpu(layer);
    std::vector<float> x(static_cast<size_t>(m * k));
    for (float& v : x) v = uniform(-1, 1);
    const int64_t out_n = layer.desc.n();
    std::vector<float> bias(static_cast<size_t>(gated ? 2 * n : n)), start(static_cast<size_t>(m * out_n));
    for (float& v : bias) v = uniform(-1, 1);
    for (float& v : start) v = uniform(-1, 1);
    const bool with_bias = round % 2, add = round % 3 == 1;
    const auto want = apply(cpu::matmul_ref, layer, x, m, with_bias ? bias.data() : nullptr, add ? &start : nullptr);
    const auto got = product(on_gpu, x, m, with_bias ? &bias : nullptr, add ? &start : nullptr);
    double scale = 1;
    for (const float v : want) scale = std::max(scale, static_cast<double>(std::fabs(v)));
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, static_cast<double>(std::fabs(want[i] - got[i])));
    const bool close = worst <= 2e-5 * scale;
    if (!close) std::printf("%s %s k %d n %d m %d gated %d: off by %g of %g\n", name(compute), info(type).name, int(k), int(n), int(m), gated, worst, scale);
    CHECK(close);
    // A row alone has the bits that it has among others.
    const auto row = static_cast<size_t>(pick(0, m - 1));
    const std::vector<float> alone_x(x.begin() + static_cast<long>(row) * k, x.begin() + (static_cast<long>(row) + 1) * k);
    const std::vector<float> alone_start(start.begin() + static_cast<long>(row) * out_n, start.begin() + (static_cast<long>(row) + 1) * out_n);
    const auto alone = product(on_gpu, alone_x, 1, with_bias ? &bias : nullptr, add ? &alone_start : nullptr);
    CHECK(std::memcmp(alone.data(), got.data() + row * static_cast<size_t>(out_n), alone.size() * 4) == 0);
    if (!gated && !add) {
      std::vector<int32_t> ids(5);
      for (auto& id : ids) id = static_cast<int32_t>(pick(0, n - 1));
      // Of the last two the token is what the step before drew; where it drew none, token 0.
      const std::vector<SampleResult> drawn = {{-1, 0.0f}, {ids[4], 0.0f}};
      ids[3] = 0;
      std::vector<int32_t> named = ids;
      named[3] = -1;
      named[4] = -2;
      On<int32_t> device_ids(named);
      On<SampleResult> device_drawn(drawn);
      On<float> rows(ids.size() * static_cast<size_t>(k), 0);
      gpu().exec().kernels->embed(gpu().exec(), {&layer.desc, on_gpu.packed.at(), device_ids.at(), 2.0f, rows.at(), 5, device_drawn.at()});
      const auto have = rows.read();
      for (size_t r = 0; r < ids.size(); ++r)
        for (int64_t i = 0; i < k; ++i) {
          const float w = 2 * layer.weight[static_cast<size_t>(ids[r])][static_cast<size_t>(i)];
          CHECK(std::fabs(have[r * static_cast<size_t>(k) + static_cast<size_t>(i)] - w) <= 1e-5f * std::max(1.0f, std::fabs(w)));
        }
    }
  }
}

TEST(products_in_fp32) { products(Compute::fp32, 60); }
TEST(products_in_bf16) { products(Compute::bf16, 200); }

float rounded(float v) { return bf16_to_f32(f32_to_bf16(v)); }

// What the model's layers ask for: rows long enough to be shared by several blocks, inputs normed by the product
// or narrow, gates, narrow outputs; every number of rows around those at which another kernel runs.
void layer_products() {
  const int64_t ks[] = {576, 1536, 2048, 4096, 8192, 14336}, ms[] = {1, 2, 3, 8, 9, 16, 17, 31, 32, 33, 70};
  const FileType types[] = {FileType::bf16, FileType::q4_0, FileType::q4_k, FileType::q8_0, FileType::q6_k, FileType::q5_1, FileType::iq4_nl};
  for (const int64_t k : ks)
    for (const FileType type : types) {
      if (k % info(type).block_elems) continue;
      const bool gated = pick(0, 1), aligned = pick(0, 1);
      const int64_t n = aligned ? 16 * pick(1, 6) : pick(1, 90);
      std::vector<std::pair<FileType, int64_t>> parts = {{type, n}};
      if (gated) parts.push_back({type, n});
      const Layer layer(k, parts, Compute::bf16, gated ? Glu::silu : Glu::none, false);
      const GpuLayer on_gpu(layer);
      const int64_t out_n = layer.desc.n();
      const int64_t most = 70;
      std::vector<float> x(static_cast<size_t>(most * k)), weight(static_cast<size_t>(k));
      for (float& v : x) v = uniform(-1, 1);
      for (float& v : weight) v = uniform(0.5f, 1.5f);
      for (const bool normed : {false, true}) {
        std::vector<float> input = x;
        if (normed) cpu::ref::norm({x.data(), k, weight.data(), 1e-5f, input.data(), k, most, k}, 0, most);
        for (float& v : input) v = rounded(v);
        const auto want = apply(cpu::matmul_ref, layer, input, most);
        std::vector<uint16_t> narrow;
        for (const float v : input) narrow.push_back(f32_to_bf16(v));
        On<float> dx(x), dw(weight);
        On<uint16_t> dn(narrow);
        double scale = 1;
        for (const float v : want) scale = std::max(scale, static_cast<double>(std::fabs(v)));
        std::vector<float> first;
        for (const int64_t m : ms) {
          const bool narrow_x = !normed && m % 2, narrow_out = gated && m % 3 == 0;
          On<float> out(static_cast<size_t>(m * out_n), 0x7f), room(static_cast<size_t>(m * k), 0xff);
          On<unsigned char> work(gpu().exec().kernels->matmul_workspace(on_gpu.desc, m), 0xff);
          MatmulArgs a{&on_gpu.desc, on_gpu.packed.at(), narrow_x ? reinterpret_cast<const float*>(dn.at()) : dx.at(), k, out.at(), out_n, m, nullptr, false, work.at()};
          a.narrow_x = narrow_x;
          a.narrow_out = narrow_out;
          if (normed) a.norm_weight = dw.at(), a.norm_eps = 1e-5f, a.normed = room.at();
          gpu().exec().kernels->matmul(gpu().exec(), a);
          work.read();
          std::vector<float> got = out.read();
          if (narrow_out) {
            std::vector<uint16_t> halves(got.size() * 2);
            std::memcpy(halves.data(), got.data(), got.size() * 4);
            for (size_t i = 0; i < got.size(); ++i) got[i] = bf16_to_f32(halves[i]);
          }
          double worst = 0;
          for (size_t i = 0; i < got.size(); ++i)
            worst = std::max(worst, static_cast<double>(std::fabs(want[i] - got[i])) - (narrow_out ? 0.004 * static_cast<double>(std::fabs(want[i])) : 0));
          // A normed value may be rounded to its other neighbour.
          const bool close = worst <= (normed ? 1e-3 : 2e-5) * scale;
          if (!close) std::printf("%s k %d n %d m %d gated %d normed %d: off by %g of %g\n", info(type).name, int(k), int(n), int(m), gated, normed, worst, scale);
          CHECK(close);
          if (m == 1)
            first = got;
          else if (!narrow_out)
            CHECK(std::memcmp(first.data(), got.data(), first.size() * 4) == 0);
        }
      }
    }
}
TEST(layers_products) { layer_products(); }

TEST(norm_and_gather) {
  for (int round = 0; round < 20; ++round) {
    const int64_t rows = pick(1, 40), dim = pick(1, 3000);
    std::vector<float> x(static_cast<size_t>(rows * dim)), w(static_cast<size_t>(dim));
    for (float& v : x) v = uniform(-3, 3);
    for (float& v : w) v = uniform(-1, 1);
    On<float> dx(x), dw(w), out(x.size(), 0);
    gpu().exec().kernels->norm(gpu().exec(), {dx.at(), dim, dw.at(), 1e-5f, out.at(), dim, rows, dim});
    std::vector<float> want(x.size());
    cpu::ref::norm({x.data(), dim, w.data(), 1e-5f, want.data(), dim, rows, dim}, 0, rows);
    const auto got = out.read();
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::fabs(got[i] - want[i]) <= 1e-5f * std::max(1.0f, std::fabs(want[i])));
    std::vector<int32_t> index(7);
    for (auto& i : index) i = static_cast<int32_t>(pick(0, rows - 1));
    On<int32_t> di(index);
    On<float> picked(index.size() * static_cast<size_t>(dim), 0);
    gpu().exec().kernels->gather(gpu().exec(), {dx.at(), dim, di.at(), picked.at(), 7, dim});
    const auto have = picked.read();
    for (size_t r = 0; r < index.size(); ++r)
      CHECK(std::memcmp(&have[r * static_cast<size_t>(dim)], &x[static_cast<size_t>(index[r] * dim)], static_cast<size_t>(dim) * 4) == 0);
  }
}

// Draws of one row of logits.
SampleResult draw(const std::vector<float>& logits, SampleRow p, std::vector<TokenLogprob>* top = nullptr) {
  const auto vocab = static_cast<int32_t>(logits.size());
  On<float> dl(logits);
  On<SampleRow> dp(std::vector<SampleRow>{p});
  On<SampleResult> out(1, 0);
  On<TokenLogprob> best(top ? top->size() : 1, 0);
  On<unsigned char> work(gpu().exec().kernels->sample_workspace(1, vocab), 0xff);
  gpu().exec().kernels->sample(gpu().exec(), {dl.at(), vocab, 1, vocab, dp.at(), out.at(), top ? best.at() : nullptr,
                                              top ? static_cast<int32_t>(top->size()) : 0, work.at()});
  if (top) *top = best.read();
  work.read();
  return out.read()[0];
}

SampleRow plain() {
  SampleRow p{};
  p.top_p = 1;
  p.repetition_penalty = 1;
  p.given = -1;
  p.n_logprobs = 5;
  return p;
}

TEST(greedy_and_logprobs_are_the_references) {
  for (int round = 0; round < 40; ++round) {
    const auto vocab = static_cast<size_t>(pick(1, 5000));
    std::vector<float> logits(vocab);
    for (float& v : logits) v = std::round(uniform(-8, 8) * 4) / 4;  // with equals
    SampleRow p = plain();
    const std::vector<TokenCount> counts = {{0, 1, 2}};
    std::vector<TokenLogprob> top(5), want_top(5);
    const SampleResult got = draw(logits, p, &top);
    SampleResult want;
    std::vector<unsigned char> work(vocab * 12 + 64);
    Kernels ref{};
    cpu::fill_ops_ref(ref);
    cpu::ThreadPool pool(1);
    const Exec e{&ref, nullptr, &pool};
    ref.sample(e, {logits.data(), static_cast<int64_t>(vocab), 1, static_cast<int32_t>(vocab), &p, &want, want_top.data(), 5, work.data()});
    CHECK(got.token == want.token && std::fabs(got.logprob - want.logprob) < 1e-5f);
    for (size_t i = 0; i < std::min<size_t>(5, vocab); ++i)
      CHECK(top[i].token == want_top[i].token && std::fabs(top[i].logprob - want_top[i].logprob) < 1e-5f);
  }
  std::vector<float> bad(100, 1.0f);
  bad[50] = NAN;
  CHECK(draw(bad, plain()).token == -1);
  bad[50] = INFINITY;
  CHECK(draw(bad, plain()).token == -1);
}

// What may come, and how often: against the distribution worked out in double.
TEST(draws_follow_the_distribution) {
  const size_t vocab = 300;
  std::vector<float> logits(vocab);
  for (float& v : logits) v = std::round(uniform(-2, 2) * 3) / 3;
  for (int kind = 0; kind < 5; ++kind) {
    SampleRow p = plain();
    p.temperature = 0.7f;
    p.n_logprobs = -2;
    if (kind == 1) p.top_k = 17;
    if (kind == 2) p.top_p = 0.6f;
    if (kind == 3) p.min_p = 0.3f;
    if (kind == 4) p.top_k = 50, p.top_p = 0.8f, p.min_p = 0.05f;
    std::vector<size_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    std::vector<double> w(vocab);
    double total = 0;
    const size_t kept = p.top_k ? static_cast<size_t>(p.top_k) : vocab;
    for (size_t i = 0; i < kept; ++i) total += w[order[i]] = std::exp((static_cast<double>(logits[order[i]]) - static_cast<double>(logits[order[0]])) / 0.7);
    double share = 0;
    const double whole = total;
    for (size_t i = 0; i < kept; ++i) {
      if (i && share >= static_cast<double>(p.top_p) * whole - 1e-9) w[order[i]] = 0;
      share += w[order[i]];
      if (w[order[i]] < static_cast<double>(p.min_p)) w[order[i]] = 0;
    }
    total = 0;
    for (const double v : w) total += v;
    // Many rows of one call.
    const int32_t rows = 4000;
    std::vector<SampleRow> params(rows, p);
    for (int32_t i = 0; i < rows; ++i) params[static_cast<size_t>(i)].seed = 11, params[static_cast<size_t>(i)].position = static_cast<uint64_t>(i);
    On<float> dl(logits);
    On<SampleRow> dp(params);
    On<SampleResult> out(rows, 0);
    On<unsigned char> work(gpu().exec().kernels->sample_workspace(rows, vocab), 0xff);
    gpu().exec().kernels->sample(gpu().exec(), {dl.at(), 0, rows, vocab, dp.at(), out.at(), nullptr, 0, work.at()});
    const auto results = out.read();
    std::vector<int> seen(vocab);
    for (const SampleResult& r : results) {
      CHECK(r.token >= 0 && w[static_cast<size_t>(r.token)] > 0);
      if (r.token >= 0) ++seen[static_cast<size_t>(r.token)];
    }
    double chi = 0;
    int cells = 0;
    for (size_t i = 0; i < vocab; ++i) {
      const double expect = w[i] / total * rows;
      if (expect < 5) continue;
      chi += (seen[i] - expect) * (seen[i] - expect) / expect;
      ++cells;
    }
    if (chi > cells + 6 * std::sqrt(2.0 * cells)) std::printf("kind %d: chi %g of %d cells\n", kind, chi, cells);
    CHECK(chi <= cells + 6 * std::sqrt(2.0 * cells));
    CHECK(draw(logits, params[3]).token == results[3].token);
  }
}

}  // namespace

int main(int count, char** values) { return gpu_test_main(count, values); }
