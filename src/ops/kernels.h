// The contract between model and hardware: every op that a backend must have, as plain data and
// function pointers. Shapes are checked in ops.cc; a kernel is pure arithmetic. All pointers are
// device memory unless a comment says host. Activations are float32; rows are contiguous with the
// stated stride in elements.
//
// Same bits: an output row depends on its own inputs only, in one fixed order of operations,
// whatever the number of rows in the call and the number of threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

// ISA-specific files include this header: it has no STL and no inline function that could be emitted
// out of line (a copy compiled for AVX-512 must never be the one the linker keeps).
namespace orlop {

class Device;
class QuantRows;
struct Kernels;

// Where an op runs: kernel table, device, and the backend's own queue (CPU: its thread pool).
struct Exec {
  const Kernels* kernels = nullptr;
  Device* device = nullptr;
  void* queue = nullptr;
  int32_t threads = 1;  // that the queue uses; the host may use as many while it loads
};

// ---- linear layers -------------------------------------------------------------------------

enum class Glu : uint8_t { none, silu, gelu_tanh };

// One packed matrix: one or several file matrices [n_i, k] stacked along n (fused q|k|v), or a
// gate/up pair whose product the kernel combines itself. Parts may differ in type.
struct LinearDesc {
  static constexpr int max_parts = 4;
  int64_t k = 0;
  int32_t part_count = 0;
  FileType type[max_parts] = {};
  int64_t part_n[max_parts] = {};
  // Types with scales of their own: elements of k that share one, a multiple of 32; 0: the whole row.
  // The last group of a row may be shorter.
  int32_t group[max_parts] = {};
  // Device memory [k] or null: packed element i multiplies x[k_map[i]] (GPTQ's act_order).
  const int32_t* k_map = nullptr;
  Glu glu = Glu::none;  // not none: two parts (gate, up) of equal n; outputs act(gate) * up
  Compute compute = Compute::bf16;

  [[gnu::always_inline]] inline int64_t n() const {  // output columns
    if (glu != Glu::none) return part_n[0];
    int64_t sum = 0;
    for (int i = 0; i < part_count; ++i) sum += part_n[i];
    return sum;
  }
};

// Host-side description of where a matrix comes from while packing: row r of part p starts at
// rows[p] + r * row_bytes[p] in the file's own layout (host memory), or, where the type's scales
// stand apart, is what quant[p] gives for it. row_map, if not null, gives the file row for each packed
// row of that part.
struct LinearSource {
  const unsigned char* rows[LinearDesc::max_parts] = {};
  size_t row_bytes[LinearDesc::max_parts] = {};
  const int32_t* row_map[LinearDesc::max_parts] = {};
  const QuantRows* quant[LinearDesc::max_parts] = {};
};

struct MatmulArgs {
  const LinearDesc* desc;  // host
  const void* packed;
  const float* x;  // [m, k]
  int64_t x_stride;
  float* out;  // [m, n]
  int64_t out_stride;
  int64_t m;
  const float* bias;  // [n] or null; gated: [2 n], of gate and of up, added before the gate
  bool accumulate;    // out += x W^T (+ bias); else out =
  void* workspace;    // at least matmul_workspace(desc, m) bytes
  // [k] or null: x is normed first, as NormArgs says; into `normed` [m, k] where the kernel does not do it
  // itself (Kernels::norms).
  const float* norm_weight = nullptr;
  float norm_eps = 0;
  float* normed = nullptr;
  bool narrow_x = false, narrow_out = false;  // rows of bf16, where Kernels::narrow allows it; strides in elements as ever
};

// ---- attention and cache -------------------------------------------------------------------

// Geometry of one layer's cache. The layout inside a page is the backend's own.
struct KvDesc {
  KvType type = KvType::bf16;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;     // multiple of 8
  int32_t page_tokens = 0;  // a multiple of 16; or 8, but for int8 and uint4
};

// cos/sin of rotary positions, computed once a step for all layers.
struct RopeTableArgs {
  const int32_t* positions;  // [rows]
  const float* inv_freq;     // [rot/2]
  float scale;               // on cos and sin (yarn's attention factor; 1 otherwise)
  int64_t rows;
  int32_t half;  // rot/2
  float* cos;    // [rows, half]
  float* sin;
};

// One sequence's rows in a ragged batch: rows [row_begin, row_begin + rows) stand at positions
// [pos_begin, pos_begin + rows); its pages are page_table[page_begin ...]. A batch of as many rows as sequences has one of
// each. What stands before pos_begin was stored in an earlier step: no other sequence of the batch stores it.
struct AttentionSeq {
  int32_t row_begin, rows;
  int32_t pos_begin;
  int32_t page_begin;
  int32_t seat;  // whose tail it uses: unique among the sequences that hold pages
};

// For each row: per-head RMS norm of q and k (if weights given), rotary embedding (half-split
// pairs: i and i + half), then k and v go to the cache; q and k stay in place, but what of them is left
// after attention is not said where the type keeps no tails. Where it does (kv_tail_bytes > 0), keys of a
// tile go to the page once its last token is there, taken from the tail and from this call's rows.
struct KvStoreArgs {
  KvDesc kv;  // host
  int32_t heads;
  float* qkv;  // [rows, (heads + 2 * kv_heads) * head_dim]: q, k, v
  int64_t qkv_stride;
  int64_t rows;
  const int32_t* slots;  // [rows]: page * page_tokens + offset in this layer's pool
  const float* cos;      // [rows, half]
  const float* sin;
  int32_t half;           // 0: no rotation
  const float* q_norm;    // [head_dim] or null
  const float* k_norm;
  float eps;
  void* pages;  // this layer's pool
  const AttentionSeq* seqs;  // [seq_count]
  int32_t seq_count;
  const void* tails;  // this layer's tails, or null if the type keeps none
};

// After attention: the rows' keys of the tile that holds a sequence's last position go to its tail
// (bf16), so that the next step finds the tile's beginning there.
struct KvTailArgs {
  KvDesc kv;       // host
  const float* k;  // [rows, kv_heads, head_dim] as kv_store left them, row stride k_stride
  int64_t k_stride;
  int64_t rows;
  const AttentionSeq* seqs;
  int32_t seq_count;
  void* tails;  // this layer's: [seats] of kv_tail_bytes each
};

// Causal attention over the cache (the rows' own keys and values are stored there already).
// Key blocks of `attention_chunk` tokens at absolute positions are reduced one by one and combined
// in order: bits do not depend on how a prompt was chunked.
constexpr int32_t attention_chunk = 256;
struct AttentionArgs {
  KvDesc kv;  // host
  int32_t heads;
  const float* q;  // [rows, heads, head_dim], row stride q_stride
  int64_t q_stride;
  const float* k;  // the rows' own keys as kv_store left them; read only where the type keeps tails
  int64_t k_stride;
  const void* tails;
  float* out;  // [rows, heads * head_dim]
  int64_t out_stride;
  const AttentionSeq* seqs;  // [seq_count]
  int32_t seq_count;
  int32_t rows;              // host bound: sum of seqs' rows
  int32_t max_context;       // host bound: max pos_begin + rows
  const int32_t* page_table;
  const void* pages;  // this layer's pool
  float scale;
  int32_t window;   // 0: all earlier keys; w: positions > p - w
  void* workspace;  // at least attention_workspace(...) bytes
  bool narrow_out = false;  // rows of bf16, where Kernels::narrow allows it
};

// ---- small ops -----------------------------------------------------------------------------

struct NormArgs {  // out = x / sqrt(mean(x^2) + eps) * weight
  const float* x;  // [rows, dim]
  int64_t x_stride;
  const float* weight;  // [dim]
  float eps;
  float* out;
  int64_t out_stride;
  int64_t rows, dim;
};

struct SampleResult {
  int32_t token;
  float logprob;  // raw distribution; NaN logits give token -1
};

struct EmbedArgs {
  const LinearDesc* desc;  // host; one part
  const void* packed;
  // [rows], each in [0, n); or below 0: -1 - i stands for the token of previous[i], where token -1 (nothing
  // could be drawn; nobody looks at what comes of it) is taken as 0.
  const int32_t* ids;
  float scale;
  float* out;  // [rows, k]
  int64_t rows;
  const SampleResult* previous = nullptr;  // what the step before drew

  [[gnu::always_inline]] inline int32_t id(int64_t row) const {
    const int32_t named = ids[row];
    if (named >= 0) return named;
    const int32_t drawn = previous[-1 - named].token;
    return drawn < 0 ? 0 : drawn;
  }
};

struct GatherArgs {  // out[i] = x[index[i]]
  const float* x;
  int64_t x_stride;
  const int32_t* index;  // [rows]
  float* out;            // [rows, dim]
  int64_t rows, dim;
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

struct TokenCount {
  int32_t token;
  int32_t in_prompt;  // 1 if the prompt holds it
  int32_t generated;  // times generated
};

// Everything that picks a token from one row of logits. Order: logit_bias, repetition, presence and
// frequency penalty, forbidden tokens, those not allowed, temperature, top_k, top_p, min_p, draw.
struct SampleRow {
  float temperature;  // 0: greedy (lowest id wins a tie)
  int32_t top_k;      // 0: off
  float top_p, min_p;
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed;
  uint64_t position;  // of the token to draw, counted from the sequence's start: Philox counter
  const TokenCount* counts;  // [count_n] distinct tokens so far
  int32_t count_n;
  const TokenLogprob* bias;  // [bias_n]: token, added bias
  int32_t bias_n;
  const int32_t* forbidden;  // [forbidden_n]: tokens that may not come (min_tokens)
  int32_t forbidden_n;
  // [vocab bits] or null: token t may come if bit t % 32 of allowed[t / 32] is set (guides).
  const uint32_t* allowed;
  int32_t n_logprobs;  // top entries wanted; -1: the whole vocabulary, by id; -2: none at all
  int32_t given;       // >= 0: do not draw, report this token's logprob (prompt_logprobs)
};
struct SampleArgs {
  const float* logits;  // [rows, vocab]
  int64_t logits_stride;
  int32_t rows, vocab;
  const SampleRow* params;   // [rows]
  SampleResult* results;     // [rows]
  TokenLogprob* top;         // [rows, top_stride], filled up to n_logprobs each
  int32_t top_stride;
  void* workspace;           // at least sample_workspace(rows, vocab)
};

// ---- the table -----------------------------------------------------------------------------

struct Kernels {
  const char* backend;       // "cpu"
  const char* isa;           // "ref", "avx2", "avx512"
  // matmul norms x itself where it is asked to; what only the next product reads may be bf16 (that product
  // rounds it to bf16 anyway).
  bool norms = false, narrow = false;

  size_t (*linear_bytes)(const LinearDesc&);
  // Packs output tiles [begin, end) of linear_tiles; tiles are independent (called in parallel).
  int64_t (*linear_tiles)(const LinearDesc&);
  void (*linear_pack)(const LinearDesc&, const LinearSource&, int64_t begin, int64_t end,
                      void* packed);
  size_t (*matmul_workspace)(const LinearDesc&, int64_t m);
  void (*matmul)(const Exec&, const MatmulArgs&);
  void (*embed)(const Exec&, const EmbedArgs&);

  size_t (*kv_page_bytes)(const KvDesc&);  // keys and values of one page of one layer
  size_t (*kv_tail_bytes)(const KvDesc&);  // of one seat and layer; 0: the type keeps no tails
  void (*rope_table)(const Exec&, const RopeTableArgs&);
  void (*kv_store)(const Exec&, const KvStoreArgs&);
  size_t (*attention_workspace)(const KvDesc&, int32_t heads, int32_t rows, int32_t max_context);
  void (*attention)(const Exec&, const AttentionArgs&);
  void (*kv_tail)(const Exec&, const KvTailArgs&);  // only called if kv_tail_bytes > 0

  void (*norm)(const Exec&, const NormArgs&);
  void (*gather)(const Exec&, const GatherArgs&);
  size_t (*sample_workspace)(int32_t rows, int32_t vocab);
  void (*sample)(const Exec&, const SampleArgs&);
};

}  // namespace orlop
