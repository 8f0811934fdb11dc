// Products of many rows, whole: see gemm.cuh.
#include <algorithm>
#include <new>

#include "backend/cuda/few_codes.h"
#include "backend/cuda/gemm.cuh"

namespace orlop::cuda {
namespace {

// What both operands become. e4m3 weights with a scale a row meet activations in e4m3, int8 ones int8, where
// activations may be that narrow; everything else is bf16.
Elem elem_of(const Context& c, const LinearDesc& d, const Pieces& pieces) {
  const Piece& first = pieces.piece[0];
  bool alike = first.scaled && !first.tiled;
  for (int i = 1; i < pieces.count; ++i) alike = alike && pieces.piece[i].codes == first.codes && !pieces.piece[i].tiled;
  if (d.glu != Glu::none && pieces.count > 1) alike = false;  // scales of gate and up do not lie together
  if (!alike || d.k != first.k_padded) return Elem::bf16;
  if (first.codes == Codes::e4m3 && d.compute == Compute::a8 && c.capability >= 89) return Elem::e4m3;
  if (first.codes == Codes::i8 && d.compute == Compute::a8) return Elem::i8;
  return Elem::bf16;
}

class Many {
 public:
  Many(Context* c, Products* p, const MatmulArgs& a)
      : c_(c), p_(p), a_(a), d_(*a.desc), pieces_(d_), elem_(elem_of(*c, d_, pieces_)), gated_(d_.glu != Glu::none) {
    auto* room = static_cast<unsigned char*>(a.workspace);
    const int64_t k = pieces_.piece[0].k_padded;
    x_ = room;
    scales_ = reinterpret_cast<float*>(room + many_scales_at(d_, a.m));
    raw_ = room + many_raw_at(d_, a.m);
    columns_ = product_columns(d_);
    // bf16 rows without anything to be done to them are taken as they are.
    in_place_ = elem_ == Elem::bf16 && a.narrow_x && !a.norm_weight && !d_.k_map && d_.k == k && a.x_stride % 8 == 0 &&
                reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
    // The product itself writes float32 rows, adds to them, and adds a bias to those of bf16 operands.
    direct_ = !gated_ && !a.narrow_out && elem_ != Elem::i8 && !(a.bias && elem_ != Elem::bf16);
  }

  bool run(PluginStatus* status) {
    if (pieces_.piece[0].codes == Codes::f32) return false;
    if (all_mixed()) return run_mixed(status);
    // Making bf16 of weights costs more than reading them once more for some of so few rows.
    for (int i = 0; i < pieces_.count; ++i)
      if (made(pieces_.piece[i]) && a_.m <= 2 * plain_rows) return false;
    for (int i = 0; i < pieces_.count; ++i)
      if (elem_ == Elem::bf16 && pieces_.piece[i].codes != Codes::bf16 && !buffer_) {
        buffer_ = weights_buffer(c_, p_, &buffer_bytes_);
        if (!buffer_) return false;
      }
    if (elem_ == Elem::e4m3 && !all_possible()) {  // scales of both sides together: not on every GPU
      outer_ = direct_ = false;
    }
    if (!all_possible()) {
      if (elem_ == Elem::bf16) return false;
      return Many(c_, p_, a_, Elem::bf16).run(status);
    }
    if (!in_place_ && !rows(0)) return false;
    int64_t column = 0;
    for (int i = 0; i < pieces_.count; ++i) {
      const Piece& l = pieces_.piece[i];
      const int64_t chunk = rows_at_once(l);
      for (int64_t begin = 0; begin < l.rows; begin += chunk) {
        const int64_t rows = std::min(chunk, l.rows - begin);
        if (made(l)) dequantize(c_, l, packed(l), begin, rows, buffer_);
        gemm(c_, p_, product(l, begin, rows, column + begin));
      }
      if (!direct_ && !gated_) finish_columns(column, l.rows, &l);
      column += l.rows;
    }
    if (gated_) finish_columns(0, d_.part_n[0], &pieces_.piece[0]);
    return true;
  }

  // Rows so few that reading the weights as they are bounds their products, on Hopper.
  bool few(PluginStatus* status) const {
    const Piece &first = pieces_.piece[0], &last = pieces_.piece[pieces_.count - 1];
    if (elem_ != Elem::bf16 || !few_codes_pays(first, a_.m) || !few_codes_pays(last, a_.m) ||
        (gated_ && (first.codes != last.codes || first.tiled != last.tiled || pieces_.count > 2)))
      return false;
    const bool in_place = a_.narrow_x && !a_.norm_weight && !d_.k_map && d_.k % 8 == 0 && a_.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(a_.x) % 16 == 0;
    StreamArgs of[LinearDesc::max_parts];
    const int count = gated_ ? 1 : pieces_.count;
    int64_t column = 0;
    for (int i = 0; i < count; ++i) {
      const Piece& l = pieces_.piece[i];
      of[i] = {.l = l,
               .low = packed(l),
               .high = packed(gated_ ? last : l),
               .up_row = gated_ && pieces_.count == 1 ? d_.part_n[0] : 0,
               .x = in_place ? static_cast<const void*>(a_.x) : x_,
               .x_stride = in_place ? a_.x_stride : l.k_padded,
               .out = a_.narrow_out ? reinterpret_cast<float*>(reinterpret_cast<__nv_bfloat16*>(a_.out) + column) : a_.out + column,
               .out_stride = a_.out_stride,
               .bias = a_.bias ? a_.bias + column : nullptr,
               .up_bias = a_.bias && gated_ ? a_.bias + d_.part_n[0] : nullptr,
               .n = gated_ ? d_.part_n[0] : l.rows,
               .m = static_cast<int32_t>(a_.m),
               .glu = static_cast<int32_t>(d_.glu),
               .narrow_x = true,
               .narrow_out = a_.narrow_out,
               .accumulate = a_.accumulate};
      if (!in_place) of[i].l.k = l.k_padded;  // as rows are made
      if (!few_codes_possible(c_, of[i])) return false;
      column += l.rows;
    }
    if (!in_place && !prepare_rows(c_, Elem::bf16, {.x = a_.x, .x_stride = a_.x_stride, .norm_weight = a_.norm_weight, .k_map = d_.k_map, .to = x_,
                                                    .m = a_.m, .k = d_.k, .k_padded = first.k_padded, .eps = a_.norm_eps, .narrow = a_.narrow_x}))
      return false;
    for (int i = 0; i < count; ++i) few_codes(c_, of[i], status);
    return true;
  }

 private:
  Many(Context* c, Products* p, const MatmulArgs& a, Elem elem) : Many(c, p, a) {
    elem_ = elem;
    direct_ = !gated_ && !a.narrow_out;
  }

  bool rows(int64_t tile) const {
    return prepare_rows(c_, elem_, {.x = a_.x, .x_stride = a_.x_stride, .norm_weight = a_.norm_weight, .k_map = d_.k_map, .to = x_,
                                    .scales = scales_, .m = a_.m, .k = d_.k, .k_padded = pieces_.piece[0].k_padded, .eps = a_.norm_eps,
                                    .narrow = a_.narrow_x, .tile = tile});
  }

  // Tiled pieces of a gated product lie alike, or they are not multiplied together.
  bool all_mixed() const {
    const Piece &first = pieces_.piece[0], &last = pieces_.piece[pieces_.count - 1];
    if (elem_ != Elem::bf16) return false;
    for (int i = 0; i < pieces_.count; ++i)
      if (!mixed_possible(*c_, pieces_.piece[i], a_.m)) return false;
    return !gated_ || pieces_.count == 1 ||
           (first.codes == last.codes && first.zero == last.zero && first.sub == last.sub && first.has_min == last.has_min);
  }

  bool run_mixed(PluginStatus* status) const {
    if (!rows(mixed_rows(a_.m))) return false;
    MixedArgs g;
    g.x = x_;
    g.m = a_.m;
    g.out_stride = a_.out_stride;
    g.narrow_out = a_.narrow_out, g.accumulate = a_.accumulate;
    g.glu = static_cast<int32_t>(d_.glu);
    mixed_room(p_, &g.partials, &g.counters);
    int64_t column = 0;
    for (int i = 0; i < (gated_ ? 1 : pieces_.count); ++i) {
      g.l = pieces_.piece[i];
      g.low = packed(g.l);
      g.high = packed(pieces_.piece[pieces_.count - 1]);
      g.up_row = pieces_.count == 1 && gated_ ? d_.part_n[0] : 0;
      g.n = gated_ ? d_.part_n[0] : g.l.rows;
      g.out = a_.narrow_out ? static_cast<void*>(reinterpret_cast<__nv_bfloat16*>(a_.out) + column) : a_.out + column;
      g.bias = a_.bias ? a_.bias + column : nullptr;
      g.up_bias = a_.bias && gated_ ? a_.bias + d_.part_n[0] : nullptr;
      mixed(c_, g, status);
      column += g.l.rows;
    }
    return true;
  }

  const unsigned char* packed(const Piece& l) const { return static_cast<const unsigned char*>(a_.packed) + l.begin; }
  bool made(const Piece& l) const { return elem_ == Elem::bf16 && l.codes != Codes::bf16; }
  int64_t rows_at_once(const Piece& l) const {
    constexpr int64_t most = 65535 / 128 * 128;  // blocks of a grid along y
    return made(l) ? std::clamp<int64_t>(static_cast<int64_t>(buffer_bytes_) / (2 * l.k_padded) / 128 * 128, 128, most) : l.rows;
  }

  GemmArgs product(const Piece& l, int64_t begin, int64_t rows, int64_t column) const {
    GemmArgs g;
    g.elem = elem_;
    g.m = a_.m, g.n = rows, g.k = l.k_padded;
    g.x = in_place_ ? static_cast<const void*>(a_.x) : x_;
    g.x_stride = in_place_ ? a_.x_stride : l.k_padded;
    g.w = made(l) ? buffer_ : packed(l) + begin * l.row_bytes;
    g.w_stride = l.k_padded;
    if (elem_ == Elem::e4m3 && outer_) {
      g.x_scales = scales_;
      g.w_scales = reinterpret_cast<const float*>(packed(l) + l.scales_at) + begin;
    }
    g.raw = raw_type();
    if (direct_) {
      g.out = a_.out + column;
      g.out_stride = a_.out_stride;
      g.bias = a_.bias ? a_.bias + column : nullptr;
      g.accumulate = a_.accumulate;
    } else {
      g.out = raw_ + column * (g.raw == Raw::bf16 ? 2 : 4);
      g.out_stride = columns_;
    }
    return g;
  }

  // Gate and up are rounded to bf16 before they are multiplied, as their product is.
  Raw raw_type() const {
    return elem_ == Elem::i8 ? Raw::i32 : gated_ && (elem_ == Elem::bf16 || outer_) ? Raw::bf16 : Raw::f32;
  }

  bool all_possible() const {
    int64_t column = 0;
    for (int i = 0; i < pieces_.count; ++i) {
      const Piece& l = pieces_.piece[i];
      const int64_t chunk = rows_at_once(l), rest = l.rows % chunk;
      if (l.rows >= chunk && !gemm_possible(c_, p_, product(l, 0, chunk, column))) return false;
      if (rest && !gemm_possible(c_, p_, product(l, l.rows - rest, rest, column + l.rows - rest))) return false;
      column += l.rows;
    }
    return true;
  }

  // n columns of the result, whose raw values (gated: and as many more) begin at `column`.
  void finish_columns(int64_t column, int64_t n, const Piece* l) {
    FinishArgs f;
    f.type = raw_type();
    f.raw = raw_ + column * (f.type == Raw::bf16 ? 2 : 4);
    f.raw_stride = columns_;
    f.narrow = a_.narrow_out;
    f.out = a_.narrow_out ? static_cast<void*>(reinterpret_cast<__nv_bfloat16*>(a_.out) + column) : a_.out + column;
    f.out_stride = a_.out_stride;
    f.m = a_.m, f.n = n;
    if (elem_ == Elem::i8 || (elem_ == Elem::e4m3 && !outer_)) {
      f.x_scales = scales_;
      f.w_scales = reinterpret_cast<const float*>(packed(*l) + l->scales_at);
    }
    f.bias = a_.bias ? a_.bias + column : nullptr;
    f.glu = d_.glu;
    f.accumulate = a_.accumulate;
    finish(c_, f);
  }

  Context* c_;
  Products* p_;
  const MatmulArgs& a_;
  const LinearDesc& d_;
  const Pieces pieces_;
  Elem elem_;
  const bool gated_;
  bool in_place_ = false, direct_ = false, outer_ = true;
  unsigned char *x_ = nullptr, *raw_ = nullptr, *buffer_ = nullptr;
  float* scales_ = nullptr;
  int64_t columns_ = 0;
  size_t buffer_bytes_ = 0;
};

}  // namespace

bool matmul_many(Context* c, const MatmulArgs& a, PluginStatus* status) try {
  if (!c->fast || a.m <= plain_rows || a.desc->compute == Compute::fp32) return false;
  if (Many(c, nullptr, a).few(status)) return true;
  Products* p = products(c);
  return p && Many(c, p, a).run(status);
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace orlop::cuda
