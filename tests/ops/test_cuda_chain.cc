// Products of few rows in fast mode, where those that follow one another become one kernel: together they are what each
// is alone, but for rows that are rounded before their norm instead of after it; the same bits every time; and each is
// what the reference makes of its input.
#include <cstdio>

#include "backend/cpu/linear.h"
#include "backend/cpu/ops.h"
#include "base/half.h"
#include "gpu_layer.h"

using namespace orlop;
using namespace orlop::test;

namespace {

// The type of a round's products, where its blocks fit; every third round has one of any.
int round_of_types = 0;
FileType a_type(int64_t k) {
  constexpr FileType types[] = {FileType::bf16, FileType::q4_0, FileType::q4_1, FileType::q4_k, FileType::q8_0,
                                FileType::q6_k, FileType::q5_1, FileType::iq4_nl, FileType::q3_k, FileType::q2_k};
  const FileType type = types[static_cast<size_t>(round_of_types % 3 == 2 ? pick(0, 9) : round_of_types % 10)];
  return k % info(type).block_elems == 0 ? type : FileType::bf16;
}

struct Product {
  Layer layer;
  GpuLayer packed;
  std::vector<float> norm;  // of the input, or empty
  bool adds;                // to the output, which is float32; else the output is bf16 if it is gated
  Product(int64_t k, std::vector<std::pair<FileType, int64_t>> parts, bool gated, bool normed, bool add)
      : layer(k, parts, Compute::bf16, gated ? Glu::silu : Glu::none, false), packed(layer), norm(normed ? static_cast<size_t>(k) : 0), adds(add) {
    for (float& v : norm) v = uniform(0.5f, 1.5f);
  }
};

std::vector<float> wide(const std::vector<uint16_t>& v) {
  std::vector<float> to;
  for (const uint16_t h : v) to.push_back(bf16_to_f32(h));
  return to;
}

// What a layer leaves: the residual stream after attention's projection and after the MLP, the MLP's inner rows, and
// the next layer's queries, keys and values.
struct Left {
  std::vector<float> first, last, next;
  std::vector<uint16_t> inner;
};

class Layers {
 public:
  Layers(int64_t m, int64_t dim, int64_t ffn, int64_t attended, int64_t next)
      : m_(m), dim_(dim), ffn_(ffn), attended_(attended), next_(next), out_(attended, {{a_type(attended), dim}}, false, false, true),
        up_(dim, both(a_type(dim), ffn), true, true, false), down_(ffn, {{a_type(ffn), dim}}, false, false, true),
        qkv_(dim, {{a_type(dim), next}}, false, true, false), x_(rows(dim)), attended_rows_(static_cast<size_t>(m * attended)) {
    for (uint16_t& v : attended_rows_) v = f32_to_bf16(uniform(-1, 1));
  }

  Left run(bool apart) const {
    On<float> x(x_), next(static_cast<size_t>(m_ * next_), 0x7f), room(static_cast<size_t>(m_ * std::max(dim_, ffn_)), 0xff);
    On<uint16_t> attended(attended_rows_), inner(static_cast<size_t>(m_ * ffn_), 0x7f);
    On<float> up_norm(up_.norm), qkv_norm(qkv_.norm);
    size_t bytes = 0;
    for (const Product* p : {&out_, &up_, &down_, &qkv_}) bytes = std::max(bytes, gpu().exec().kernels->matmul_workspace(p->packed.desc, m_));
    On<unsigned char> work(bytes, 0xff);
    Left left;
    const auto product = [&](const Product& p, const void* from, bool narrow_x, void* to, const On<float>* norm) {
      MatmulArgs a{&p.packed.desc, p.packed.packed.at(), static_cast<const float*>(from), p.layer.desc.k, static_cast<float*>(to), p.layer.desc.n(), m_, nullptr, p.adds, work.at()};
      a.narrow_x = narrow_x;
      a.narrow_out = p.layer.desc.glu != Glu::none;
      if (norm) a.norm_weight = norm->at(), a.norm_eps = 1e-5f, a.normed = room.at();
      gpu().exec().kernels->matmul(gpu().exec(), a);
    };
    product(out_, attended.at(), true, x.at(), nullptr);
    if (apart) left.first = x.read();
    product(up_, x.at(), false, inner.at(), &up_norm);
    if (apart) left.inner = inner.read();
    product(down_, inner.at(), true, x.at(), nullptr);
    if (apart) left.last = x.read();
    product(qkv_, x.at(), false, next.at(), &qkv_norm);
    left.next = next.read();
    left.last = x.read();
    left.inner = inner.read();
    work.read();
    return left;
  }

  void check() const {
    const Left apart = run(true);
    const Left together = run(false);
    for (int again = 0; again < 3; ++again) {
      const Left more = run(false);
      CHECK(same(together.inner, more.inner) && same(together.last, more.last) && same(together.next, more.next));
    }
    if (!on_the_way()) CHECK(same(together.inner, apart.inner) && same(together.last, apart.last) && same(together.next, apart.next));
    close("gate | up together", wide(together.inner), up_, apart.first, nullptr, 0.004, &out_);
    close("down together", together.last, down_, wide(together.inner), &apart.first, 0);
    close("qkv together", together.next, qkv_, together.last, nullptr, 0, &down_);
    close("out", apart.first, out_, wide(attended_rows_), &x_, 0);
    close("gate | up", wide(apart.inner), up_, apart.first, nullptr, 0.004);
    close("down", apart.last, down_, wide(apart.inner), &apart.first, 0);
    close("qkv", apart.next, qkv_, apart.last, nullptr, 0);
  }

 private:
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }
  static std::vector<std::pair<FileType, int64_t>> both(FileType type, int64_t n) { return {{type, n}, {type, n}}; }
  std::vector<float> rows(int64_t n) const {
    std::vector<float> v(static_cast<size_t>(m_ * n));
    for (float& e : v) e = uniform(-1, 1);
    return v;
  }
  // Rows of the stream are normed on their way (chain_parts.cuh), where the norm is a chain's at all.
  bool on_the_way() const { return dim_ % 64 == 0 && dim_ <= 8192; }
  // Multiplied by the norm's weights, rounded, and what the product makes of them scaled.
  std::vector<float> of_late_norm(const Product& p, const std::vector<float>& input) const {
    const int64_t k = p.layer.desc.k, n = p.layer.desc.n();
    const bool gated = p.layer.desc.glu != Glu::none;
    std::vector<float> all;
    for (int64_t row = 0; row < m_; ++row) {
      const float* x = &input[static_cast<size_t>(row * k)];
      std::vector<double> v;
      double squares = 0;
      for (int64_t i = 0; i < k; ++i) {
        squares += double{x[i]} * double{x[i]};
        v.push_back(double{bf16_to_f32(f32_to_bf16(x[i] * p.norm[static_cast<size_t>(i)]))});
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(k) + 1e-5);
      const auto sum = [&](int64_t of) {
        const std::vector<float>& w = p.layer.weight[static_cast<size_t>(of)];
        double all_k = 0;
        for (size_t i = 0; i < v.size(); ++i) all_k += double{w[i]} * v[i];
        return all_k * scale;
      };
      for (int64_t i = 0; i < n; ++i) {
        const double g = sum(i);
        all.push_back(static_cast<float>(gated ? sum(n + i) * g / (1 + std::exp(-g)) : g));
      }
    }
    return all;
  }
  void close(const char* what, const std::vector<float>& got, const Product& p, std::vector<float> input, const std::vector<float>* start, double relative, const Product* before = nullptr) const {
    // Products of one type are one kernel, and rows are normed on their way between them; those of two may be two.
    const bool late = before && on_the_way(), maybe = late && before->layer.desc.type[0] != p.layer.desc.type[0];
    const int64_t k = p.layer.desc.k;
    double scale = 1, worst = 0;
    const auto differ = [&](const std::vector<float>& want) {
      scale = 1, worst = 0;
      for (const float v : want) scale = std::max(scale, static_cast<double>(std::fabs(v)));
      for (size_t i = 0; i < want.size(); ++i) {
        const double off = std::fabs(static_cast<double>(want[i]) - got[i]) - relative * std::fabs(want[i]);
        worst = off <= worst ? worst : off == off ? off : 1e30;
      }
      // A normed value may be rounded to its other neighbour.
      return worst <= (p.norm.empty() ? 2e-5 : 1e-3) * scale;
    };
    bool good = late && differ(of_late_norm(p, input));
    if (!late || (!good && maybe)) {
      if (!p.norm.empty()) {
        const std::vector<float> plain = input;
        cpu::ref::norm({plain.data(), k, p.norm.data(), 1e-5f, input.data(), k, m_, k}, 0, m_);
      }
      for (float& v : input) v = bf16_to_f32(f32_to_bf16(v));
      good = differ(apply(cpu::matmul_ref, p.layer, input, m_, nullptr, start));
    }
    if (!good) std::printf("%s of %s: m %d, k %d, n %d: off by %g of %g\n", what, info(p.layer.desc.type[0]).name, int(m_), int(k), int(p.layer.desc.n()), worst, scale);
    CHECK(good);
  }
  int64_t m_, dim_, ffn_, attended_, next_;
  Product out_, up_, down_, qkv_;
  std::vector<float> x_;
  std::vector<uint16_t> attended_rows_;
};

TEST(products_in_turn_are_those_alone) {
  const struct {
    int64_t dim, ffn, attended;
  } shapes[] = {{576, 1536, 576}, {2048, 768, 512}, {264, 520, 4096}, {512, 7168, 1024}, {4096, 256, 256}, {8192, 256, 256}, {8320, 256, 512}};
  // Blocks that have one tile of each product but the last, as in small models.
  for (const int64_t rows : {1, 2, 4}) {
    round_of_types = 0;
    Layers(rows, 1024, 3072, 1024, 4096).check();
  }
  for (int round = 0; round < 35; ++round) {
    const auto& s = shapes[round % 7];
    round_of_types = round;
    const int64_t rows = round % 3 ? 1 : pick(2, 4);
    try {
      Layers(rows, s.dim, s.ffn, s.attended, 16 * pick(1, 90) + pick(0, 3)).check();
    } catch (...) {
      std::printf("round %d: %d rows, dim %d, ffn %d, attended %d\n", round, int(rows), int(s.dim), int(s.ffn), int(s.attended));
      throw;
    }
  }
}

}  // namespace

int main(int count, char** values) {
  in_fast_mode = true;
  return gpu_test_main(count, values);
}
