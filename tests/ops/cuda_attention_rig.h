// A cache of the GPU and what the tests of its attention feed it with.
#pragma once
#define ORLOP_BOTH
#include "attention_rig.h"

#include "backend/backend.h"
#include "backend/cpu/kv_code.h"
#include "backend/cpu/kv_layout.h"
#include "backend/cuda/kv_layout.cuh"
#include "base/error.h"

namespace orlop::test {

inline const Exec& gpu(bool deterministic) {
  static const std::unique_ptr<Backend> backends[2] = {make_backend({.device = "cuda", .threads = 1, .deterministic = false}),
                                                       make_backend({.device = "cuda", .threads = 1, .deterministic = true})};
  static const Exec execs[2] = {backends[0]->exec(), backends[1]->exec()};
  return execs[deterministic];
}

// Device memory that begins with a host array, and 64 poisoned bytes after it.
class On {
 public:
  template <class T>
  On(const Exec& e, const std::vector<T>& v) : On(e, v.size() * sizeof(T), 0) {
    put(v);
  }
  On(const Exec& e, size_t bytes, int byte) : device_(*e.device), bytes_(bytes), buffer_(device_, bytes + 64) { fill(bytes, byte); }
  // From now on it has so many bytes, no more than ever.
  void fill(size_t bytes, int byte) {
    bytes_ = bytes;
    device_.fill(buffer_.data(), byte, bytes);
    device_.fill(buffer_.as<char>() + bytes, 0xcc, 64);
  }
  template <class T>
  void put(const std::vector<T>& v) const {
    if (!v.empty()) device_.upload(buffer_.data(), v.data(), v.size() * sizeof(T));
  }
  template <class T>
  T* as() const {
    return buffer_.as<T>();
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> v(bytes_ / sizeof(T));
    if (!v.empty()) device_.download(v.data(), buffer_.data(), bytes_);
    check_end();
    return v;
  }
  void check_end() const {
    unsigned char after[64];
    device_.download(after, buffer_.as<char>() + bytes_, 64);
    for (const unsigned char b : after) CHECK(b == 0xcc);
  }

 private:
  Device& device_;
  size_t bytes_;
  DeviceBuffer buffer_;
};

// The model's other inputs to kv_store; turns are of positions.
struct Extras {
  int half = 0;
  Rows cos, sin, q_norm, k_norm;
  float eps = 1e-5f;
  Rows turns(const Rows& of, int position) const { return {of.begin() + position * half, of.begin() + (position + 1) * half}; }
};

inline Extras random_extras(const Shape& s, int half, bool norms, int length, Random& random) {
  Extras x;
  x.half = half;
  x.cos = random.normals(static_cast<size_t>(length * half));
  x.sin = random.normals(static_cast<size_t>(length * half));
  if (norms) x.q_norm = random.normals(static_cast<size_t>(s.dim)), x.k_norm = random.normals(static_cast<size_t>(s.dim));
  return x;
}

struct Feeding {
  bool narrow = false;
  const Extras* extras = nullptr;
  bool apart = false;     // what kv_store does is done before attention is called
  int* at_once = nullptr;  // counts steps whose rows are as they came: attention has stored them
};

// feed() of attention_rig.h on the device: each sequence's outputs; pages and tails at the end, in the order of
// the sequences.
inline std::vector<Rows> feed_gpu(const Exec& e, const Shape& s, const std::vector<Rows>& qkv, const std::vector<Step>& steps, uint32_t seed,
                                  const Feeding& how = {}, std::vector<unsigned char>* pages_out = nullptr, std::vector<unsigned char>* tails_out = nullptr) {
  const Kernels& k = *e.kernels;
  const KvDesc kv{s.type, s.kv_heads, s.dim, s.page_tokens};
  const size_t n = qkv.size();
  std::vector<int> length(n), first_page(n), done(n, 0);
  int page_count = 0;
  for (size_t i = 0; i < n; ++i) {
    length[i] = static_cast<int>(qkv[i].size()) / s.row();
    first_page[i] = page_count;
    page_count += (length[i] + s.page_tokens - 1) / s.page_tokens;
  }
  std::vector<int32_t> table(static_cast<size_t>(page_count) + 1), seats(n + 1);
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(seed));
  std::iota(seats.begin(), seats.end(), 0);
  std::shuffle(seats.begin(), seats.end(), std::mt19937(seed + 1));
  const size_t page_bytes = k.kv_page_bytes(kv), tail_bytes = k.kv_tail_bytes(kv);
  const On pages(e, page_bytes * table.size(), 0xff), tails(e, tail_bytes * (n + 1), 0xff);
  // A table ends where the sequence does: what is beyond is not read.
  std::vector<int32_t> used(table.begin(), table.end() - 1);
  const On device_table(e, used);

  const Extras none;
  const Extras& extras = how.extras ? *how.extras : none;
  const int width = s.heads * s.dim, longest = *std::max_element(length.begin(), length.end());
  size_t most_rows = 0;
  for (const Step& step : steps) {
    size_t rows = 0;
    for (const Part& p : step) rows += static_cast<size_t>(p.rows);
    most_rows = std::max(most_rows, rows);
  }
  On device_in(e, 4 * most_rows * static_cast<size_t>(s.row()), 0), device_seqs(e, sizeof(AttentionSeq) * n, 0), device_slots(e, 4 * most_rows, 0);
  On cos(e, 4 * most_rows * static_cast<size_t>(extras.half), 0), sin(e, 4 * most_rows * static_cast<size_t>(extras.half), 0);
  On out(e, 4 * most_rows * static_cast<size_t>(width), 0xff), work(e, k.attention_workspace(kv, s.heads, static_cast<int32_t>(most_rows), longest), 0xff);
  const On q_norm(e, extras.q_norm), k_norm(e, extras.k_norm);

  std::vector<Rows> outs(n);
  for (size_t i = 0; i < n; ++i) outs[i].assign(static_cast<size_t>(length[i] * width), nan);
  for (const Step& step : steps) {
    int rows = 0, max_context = 0;
    std::vector<AttentionSeq> seqs;
    std::vector<int32_t> slots;
    Rows in, cosines, sines;
    for (const Part& p : step) {
      const auto i = static_cast<size_t>(p.seq);
      seqs.push_back({rows, p.rows, done[i], first_page[i], seats[i]});
      for (int r = 0; r < p.rows; ++r) {
        const int at = done[i] + r;
        slots.push_back(table[static_cast<size_t>(first_page[i] + at / s.page_tokens)] * s.page_tokens + at % s.page_tokens);
        for (const float x : extras.turns(extras.cos, at)) cosines.push_back(x);
        for (const float x : extras.turns(extras.sin, at)) sines.push_back(x);
      }
      in.insert(in.end(), qkv[i].begin() + done[i] * s.row(), qkv[i].begin() + (done[i] + p.rows) * s.row());
      rows += p.rows;
      max_context = std::max(max_context, done[i] + p.rows);
    }
    device_in.put(in);
    device_seqs.put(seqs);
    device_slots.put(slots);
    cos.put(cosines);
    sin.put(sines);
    out.fill(static_cast<size_t>(rows * width) * (how.narrow ? 2 : 4), 0xff);
    work.fill(k.attention_workspace(kv, s.heads, rows, max_context), 0xff);
    KvStoreArgs store{};
    store.kv = kv;
    store.heads = s.heads;
    store.qkv = device_in.as<float>();
    store.qkv_stride = s.row();
    store.rows = rows;
    store.slots = device_slots.as<int32_t>();
    store.cos = cos.as<float>();
    store.sin = sin.as<float>();
    store.half = extras.half;
    store.q_norm = extras.q_norm.empty() ? nullptr : q_norm.as<float>();
    store.k_norm = extras.k_norm.empty() ? nullptr : k_norm.as<float>();
    store.eps = extras.eps;
    store.pages = pages.as<void>();
    store.seqs = device_seqs.as<AttentionSeq>();
    store.seq_count = static_cast<int32_t>(seqs.size());
    store.tails = tail_bytes ? tails.as<void>() : nullptr;
    k.kv_store(e, store);
    if (how.apart) cos.check_end();  // whatever asks for memory
    AttentionArgs a{};
    a.kv = kv;
    a.heads = s.heads;
    a.q = device_in.as<float>();
    a.q_stride = s.row();
    if (tail_bytes) {
      a.k = device_in.as<float>() + width;
      a.k_stride = s.row();
      a.tails = tails.as<void>();
    }
    a.out = out.as<float>();
    a.out_stride = width;
    a.narrow_out = how.narrow;
    a.seqs = store.seqs;
    a.seq_count = store.seq_count;
    a.rows = rows;
    a.max_context = max_context;
    a.page_table = device_table.as<int32_t>();
    a.pages = pages.as<void>();
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
    a.window = s.window;
    a.workspace = work.as<void>();
    k.attention(e, a);
    if (tail_bytes)
      k.kv_tail(e, {kv, device_in.as<float>() + width, s.row(), rows, device_seqs.as<AttentionSeq>(), store.seq_count, tails.as<void>()});
    Rows got;
    if (how.narrow)
      for (const uint16_t bits : out.read<uint16_t>()) got.push_back(bf16_to_f32(bits));
    else
      got = out.read<float>();
    work.check_end();
    if (how.at_once && static_cast<size_t>(rows) == step.size()) {
      Rows left(in.size());
      e.device->download(left.data(), device_in.as<void>(), 4 * left.size());
      *how.at_once += same_bits(left, in);
    }
    for (size_t j = 0; j < step.size(); ++j) {
      const auto i = static_cast<size_t>(step[j].seq);
      std::copy_n(got.begin() + seqs[j].row_begin * width, step[j].rows * width, outs[i].begin() + done[i] * width);
      done[i] += step[j].rows;
    }
  }
  const auto all_pages = pages.read<unsigned char>(), all_tails = tails.read<unsigned char>();
  if (pages_out) {
    pages_out->clear();
    for (int i = 0; i < page_count; ++i) {
      const auto page = all_pages.begin() + static_cast<long>(page_bytes) * table[static_cast<size_t>(i)];
      pages_out->insert(pages_out->end(), page, page + static_cast<long>(page_bytes));
    }
  }
  if (tails_out) {
    tails_out->clear();
    for (size_t i = 0; i < n; ++i) {
      const auto tail = all_tails.begin() + static_cast<long>(tail_bytes) * seats[i];
      tails_out->insert(tails_out->end(), tail, tail + static_cast<long>(tail_bytes));
    }
  }
  return outs;
}

constexpr KvType types[] = {KvType::f32, KvType::bf16, KvType::f16, KvType::int8, KvType::uint4};

inline Shape random_shape(Random& random, KvType type, bool odd) {
  const int dims[] = {64, 80, 96, 128, 256}, odd_dims[] = {8, 24, 40, 72, 48, 192};
  const int pages[] = {8, 16, 32, 48, 64, 256};
  Shape s{};
  s.dim = odd ? odd_dims[random.below(6)] : dims[random.below(5)];
  s.kv_heads = random.between(1, s.dim > 96 ? 2 : 3);
  const int groups[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
  s.heads = s.kv_heads * groups[random.below(s.dim > 96 ? 6 : 9)];
  do s.page_tokens = pages[random.below(6)];
  while (cuda::is_coded(type) && s.page_tokens == 8);
  s.type = type;
  s.window = random.below(3) ? 0 : random.between(1, 300);
  const int tile = cuda::KvLayout({type, s.kv_heads, s.dim, s.page_tokens}).key_tile;
  if (tile) s.key_tile = tile;
  return s;
}

inline std::string words(const Shape& s) {
  char text[160];
  std::snprintf(text, sizeof text, "%s heads %d/%d dim %d pages of %d window %d", name(s.type), s.heads, s.kv_heads, s.dim, s.page_tokens, s.window);
  return text;
}

// Queries, keys' products with scales and weights are bf16 (fp16): each is off by 2^-9 of itself. A value that
// lies between two codes may fall to the other one in the formula.
inline double bound(KvType type) { return type == KvType::f32 ? 3e-5 : type == KvType::f16 ? 3e-3 : type == KvType::uint4 ? 6e-2 : 1.5e-2; }
inline double mean_bound(KvType type) { return type == KvType::f32 ? 5e-6 : type == KvType::f16 ? 1e-3 : 5e-3; }

inline bool close(const Shape& s, const Rows& got, const Rows& want, int from_row, const char* what) {
  double error = 0, square = 0, most = 0;
  for (size_t i = static_cast<size_t>(from_row * s.heads * s.dim); i < want.size(); ++i) {
    const double e = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += e * e;
    square += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    most = std::fabs(e) <= most ? most : e == e ? std::fabs(e) : 1e30;
  }
  const double mean = std::sqrt(error / square);
  const bool good = most <= bound(s.type) && mean <= mean_bound(s.type);
  if (!good) std::printf("  %s, %s: off by %g, in the mean %g\n", words(s).c_str(), what, most, mean);
  return good;
}

inline int attention_test_main(int count, char** values) {
  try {
    gpu(true);
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
    return 77;
  }
  return test_main(count, values);
}

}  // namespace orlop::test
