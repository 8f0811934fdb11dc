// The kernel of a GPU's decode steps (backend/cuda/chain_kernel.cuh) on the processor, a thread for each of the GPU's:
// what it computes, and that it ends, whatever the number of tiles that blocks have of each product. Beside it every
// address is one of this process: sanitizers see them all. Nothing here says how fast it is, or what a GPU's memory
// does in which order.
#include <cstdio>
#include <thread>

#include "backend/cpu/ops.h"
#include "backend/cuda/chain_kernel.cuh"
#include "backend/cuda/pack.h"
#include "matmul_rig.h"

namespace orlop::test {
namespace {

using namespace orlop::cuda;

// A layer, packed for the GPU.
struct Packed {
  Layer layer;
  Pieces pieces;
  std::unique_ptr<unsigned char[], EmulatedBlock::Free> memory;

  Packed(int64_t k, std::vector<std::pair<FileType, int64_t>> parts, Glu glu = Glu::none)
      : layer(k, std::move(parts), Compute::bf16, glu), pieces(layer.desc), memory(new (std::align_val_t{128}) unsigned char[cuda::linear_bytes(layer.desc)]) {
    LinearSource source;
    for (int p = 0; p < layer.desc.part_count; ++p) {
      const auto i = static_cast<size_t>(p);
      source.rows[p] = layer.files[i].data();
      source.row_bytes[p] = layer.files[i].size() / static_cast<size_t>(layer.desc.part_n[p]);
      source.row_map[p] = layer.maps[i].data();
    }
    pack_tiles(layer.desc, source, 0, cuda::linear_tiles(layer.desc), [&](int64_t at, const void* from, size_t bytes) { std::memcpy(memory.get() + at, from, bytes); });
  }

  StreamArgs product(int32_t m, const void* x, const float* norm, void* out, bool adds) const {
    StreamArgs a{};
    const LinearDesc& d = layer.desc;
    const bool gated = d.glu != Glu::none;
    a.l = pieces.piece[0];
    a.low = memory.get() + a.l.begin;
    a.high = memory.get() + pieces.piece[pieces.count - 1].begin;
    a.up_row = gated && pieces.count == 1 ? d.part_n[0] : 0;
    a.x = x;
    a.x_stride = d.k;
    a.norm_weight = norm;
    a.norm_eps = 1e-5f;
    a.out = static_cast<float*>(out);
    a.out_stride = d.n();
    a.n = gated ? d.part_n[0] : a.l.rows;
    a.m = m;
    a.glu = static_cast<int32_t>(d.glu);
    a.narrow_x = !norm;
    a.narrow_out = gated;
    a.accumulate = adds;
    return a;
  }
};

template <Codes codes, Scales scales>
void run(const std::vector<StreamArgs>& ops, ChainState* state, unsigned blocks, int most) {
  using S = Stages<codes, scales>;
  Chain c{};
  c.state = state;
  c.stages = most;
  size_t shared = 0;
  for (const StreamArgs& a : ops) {
    if (&a == &ops[0])
      c.op[0] = {a, -1, 0, nullptr}, c.count = 1;
    else
      CHECK(follow(c, {a, -1, 0, nullptr}));
    shared = std::max(shared, static_cast<size_t>(S::besides(a.m) + Input<codes, scales>::bytes(a) + most * S::stage_bytes(a.l)));
  }
  constexpr int all = threads + 32 + 32 * finishers;
  gridDim.x = blocks;
  std::vector<std::unique_ptr<EmulatedBlock>> of;
  std::vector<std::thread> running;
  for (unsigned b = 0; b < blocks; ++b) of.push_back(std::make_unique<EmulatedBlock>(shared, all, b));
  for (const auto& b : of)
    for (unsigned t = 0; t < all; ++t)
      running.emplace_back([&c, own = b.get(), t] {
        block = own;
        blockIdx.x = own->number;
        threadIdx.x = t;
        products_in_turn<codes, scales>(c);
      });
  for (std::thread& t : running) t.join();
}

void run(const std::vector<StreamArgs>& ops, ChainState* state, unsigned blocks, int most) {
  const Piece& l = ops[0].l;
  if (l.codes == Codes::bf16) return run<Codes::bf16, Scales::none>(ops, state, blocks, most);
  if (l.codes == Codes::u4) return run<Codes::u4, Scales::any>(ops, state, blocks, most);
  run<Codes::i8, Scales::any>(ops, state, blocks, most);
}

// Sums of rows of weights with rows of activations, those rounded to bf16, normed before if they are to be; where rows
// are normed on their way, multiplied by its weights before, and what comes of them scaled.
std::vector<double> sums(const Packed& p, std::vector<float> x, const std::vector<float>* norm) {
  const int64_t k = p.layer.desc.k, m = static_cast<int64_t>(x.size()) / k;
  std::vector<double> scale(static_cast<size_t>(m), 1.0);
  if (norm && norm_on_the_way(k)) {
    for (int64_t row = 0; row < m; ++row) {
      double squares = 0;
      for (int64_t i = 0; i < k; ++i) {
        float& v = x[static_cast<size_t>(row * k + i)];
        squares += double{v} * double{v};
        v *= (*norm)[static_cast<size_t>(i)];
      }
      scale[static_cast<size_t>(row)] = 1 / std::sqrt(squares / static_cast<double>(k) + 1e-5);
    }
  } else if (norm) {
    const std::vector<float> from = x;
    cpu::ref::norm({from.data(), k, norm->data(), 1e-5f, x.data(), k, m, k}, 0, m);
  }
  std::vector<double> all;
  for (int64_t row = 0; row < m; ++row)
    for (const std::vector<float>& w : p.layer.weight) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += double{w[static_cast<size_t>(i)]} * bf16_to_f32(f32_to_bf16(x[static_cast<size_t>(row * k + i)]));
      all.push_back(sum * scale[static_cast<size_t>(row)]);
    }
  return all;
}

void close(const char* what, const std::vector<float>& got, const std::vector<double>& want, double bound) {
  double scale = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) scale = std::max(scale, std::fabs(want[i])), worst = std::max(worst, std::fabs(want[i] - double{got[i]}));
  const bool good = got.size() == want.size() && worst <= bound * scale;
  if (!good) std::printf("  %s: off by %g of %g\n", what, worst, scale);
  CHECK(good);
}

std::vector<float> randoms(int64_t n, float low, float high) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& e : v) e = uniform(low, high);
  return v;
}

struct alignas(16) Words {
  uint64_t v[2];
};

// A layer's products: attention's to the residual stream, gate and up, down to the stream, the next queries.
void layer(FileType type, int32_t m, int64_t dim, int64_t ffn, int64_t attended, int64_t next, ChainState* state, unsigned blocks, int stages) {
  std::printf("%s, %d rows, %d %d %d %d, %u blocks, %d stages\n", info(type).name, m, int(dim), int(ffn), int(attended), int(next), blocks, stages);
  const Packed out(attended, {{type, dim}}), up(dim, {{type, ffn}, {type, ffn}}, Glu::silu), down(ffn, {{type, dim}}), qkv(dim, {{type, next}});
  const std::vector<float> x = randoms(m * dim, -1, 1), up_norm = randoms(dim, 0.5f, 1.5f), qkv_norm = randoms(dim, 0.5f, 1.5f), from = randoms(m * attended, -1, 1);
  // As the GPU's: at multiples of 16 bytes.
  const auto floats = [](const std::vector<float>& v) {
    std::vector<Words> words(v.size() / 4 + 1);
    std::memcpy(words.data(), v.data(), v.size() * 4);
    return words;
  };
  std::vector<Words> attended_rows(from.size() / 8 + 1), inner(static_cast<size_t>(m * ffn) / 8 + 1), stream = floats(x), first_norm = floats(up_norm), second_norm = floats(qkv_norm);
  auto* halves = reinterpret_cast<uint16_t*>(attended_rows.data());
  for (size_t i = 0; i < from.size(); ++i) halves[i] = f32_to_bf16(from[i]);
  std::vector<float> queries(static_cast<size_t>(m * next));
  run({out.product(m, attended_rows.data(), nullptr, stream.data(), true), up.product(m, stream.data(), reinterpret_cast<const float*>(first_norm.data()), inner.data(), false),
       down.product(m, inner.data(), nullptr, stream.data(), true), qkv.product(m, stream.data(), reinterpret_cast<const float*>(second_norm.data()), queries.data(), false)},
      state, blocks, stages);

  std::vector<float> before = x;
  const std::vector<double> added = sums(out, from, nullptr);
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(double{before[i]} + added[i]);
  const std::vector<double> gates = sums(up, before, &up_norm);
  std::vector<float> got_inner(static_cast<size_t>(m * ffn)), after(before.size());
  std::vector<double> want_inner;
  const auto* inner_halves = reinterpret_cast<const uint16_t*>(inner.data());
  for (size_t i = 0; i < got_inner.size(); ++i) {
    const size_t at = i / static_cast<size_t>(ffn) * 2 * static_cast<size_t>(ffn) + i % static_cast<size_t>(ffn);
    want_inner.push_back(gates[at + static_cast<size_t>(ffn)] * gates[at] / (1 + std::exp(-gates[at])));
    got_inner[i] = bf16_to_f32(inner_halves[i]);
  }
  close("gate and up", got_inner, want_inner, 0.005);
  std::memcpy(after.data(), stream.data(), after.size() * 4);
  std::vector<double> want = sums(down, got_inner, nullptr);
  for (size_t i = 0; i < want.size(); ++i) want[i] += double{before[i]};
  close("the stream", after, want, 1e-5);
  close("queries", queries, sums(qkv, after, &qkv_norm), 1e-3);  // a normed value may be rounded to its other neighbour
}

class Chained {
 public:
  Chained() : state_(static_cast<ChainState*>(std::aligned_alloc(64, sizeof(ChainState) / 64 * 64 + 64))) { std::memset(static_cast<void*>(state_.get()), 0, sizeof(ChainState)); }
  ChainState* state() const { return state_.get(); }

 private:
  struct Free {
    void operator()(ChainState* s) const { std::free(s); }
  };
  std::unique_ptr<ChainState, Free> state_;
};

TEST(a_layer_of_every_kind_of_code) {
  const Chained c;
  const FileType types[] = {FileType::bf16, FileType::q4_0, FileType::q4_k, FileType::q8_0, FileType::q6_k, FileType::q5_1};
  uint32_t launches = 0;
  for (const FileType type : types) {
    layer(type, 1 + static_cast<int32_t>(launches % 4), 256 + 256 * (launches % 2), 512, 256, 70, c.state(), 2 + launches % 2, 2 + static_cast<int>(launches % 3));
    CHECK(c.state()->launches == ++launches && c.state()->done == 0);
  }
}

// One that has a tile of each but the last product, where it has two, must not be taken for one that is further on.
TEST(blocks_have_any_number_of_tiles) {
  const Chained c;
  layer(FileType::bf16, 1, 32, 32, 64, 64, c.state(), 2, 3);
  layer(FileType::bf16, 1, 32, 48, 32, 16, c.state(), 2, 2);   // none of the last
  layer(FileType::bf16, 2, 16, 16, 16, 160, c.state(), 2, 4);  // none of the first, five of the last
  layer(FileType::bf16, 1, 64, 32, 32, 96, c.state(), 1, 2);   // alone
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::test_main(count, values); }
