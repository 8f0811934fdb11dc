#include "ops/ops.h"

#include "base/error.h"

namespace orlop::ops {
namespace {

void require(bool ok, const char* op, const char* rule) {
  if (!ok) fail(Status::internal, op, ": ", rule, " does not hold");
}

void require_kv(const KvDesc& kv, const char* op) {
  require(kv.kv_heads > 0 && kv.head_dim > 0 && kv.head_dim % 8 == 0, op, "head_dim % 8 == 0");
  require(kv.page_tokens > 0 &&
              (kv.page_tokens % 16 == 0 ||
               (kv.page_tokens == 8 && kv.type != KvType::int8 && kv.type != KvType::uint4)),
          op, "page_tokens is a multiple of 16, or 8 where the type allows it");
}

// 255 * 127 * 2^16 fits int32.
constexpr int64_t max_a8_k = 65536;

}  // namespace

void check_table(const Kernels& k) {
  const struct {
    const char* name;
    bool there;
  } entries[] = {
      {"linear_bytes", k.linear_bytes != nullptr},
      {"linear_tiles", k.linear_tiles != nullptr},
      {"linear_pack", k.linear_pack != nullptr},
      {"matmul_workspace", k.matmul_workspace != nullptr},
      {"matmul", k.matmul != nullptr},
      {"embed", k.embed != nullptr},
      {"kv_page_bytes", k.kv_page_bytes != nullptr},
      {"kv_tail_bytes", k.kv_tail_bytes != nullptr},
      {"kv_tail", k.kv_tail != nullptr},
      {"rope_table", k.rope_table != nullptr},
      {"kv_store", k.kv_store != nullptr},
      {"attention_workspace", k.attention_workspace != nullptr},
      {"attention", k.attention != nullptr},
      {"norm", k.norm != nullptr},
      {"gather", k.gather != nullptr},
      {"sample_workspace", k.sample_workspace != nullptr},
      {"sample", k.sample != nullptr},
  };
  for (const auto& e : entries)
    if (!e.there) fail(Status::unsupported, "backend ", k.backend, " has no kernel for ", e.name);
}

void check_linear(const LinearDesc& d, const char* what) {
  if (d.part_count < 1 || d.part_count > LinearDesc::max_parts)
    fail(Status::internal, what, ": ", d.part_count, " parts");
  for (int p = 0; p < d.part_count; ++p) {
    const FileTypeInfo& type = info(d.type[p]);
    if (d.k <= 0 || d.part_n[p] <= 0)
      fail(Status::bad_format, what, ": shape ", d.part_n[p], " x ", d.k, " is empty");
    if (d.k % type.block_elems != 0)
      fail(Status::bad_format, what, ": rows of ", d.k, " elements do not fill blocks of ",
           type.name, " (", type.block_elems, ")");
    if (static_cast<int>(d.type[p]) >= kernel_type_count)
      fail(Status::unsupported, what, ": weights of type ", type.name);
    if (d.group[p] < 0 || d.group[p] % 32 || (d.group[p] && !has_groups(d.type[p])))
      fail(Status::internal, what, ": groups of ", d.group[p]);
    if (d.compute == Compute::a8 && d.k > max_a8_k)
      fail(Status::unsupported, what, ": rows of ", d.k, " elements with compute a8, at most ",
           max_a8_k, " are possible");
  }
  if (d.glu != Glu::none && (d.part_count != 2 || d.part_n[0] != d.part_n[1]))
    fail(Status::internal, what, ": gate and up must be two parts of equal rows");
}

void matmul(const Exec& e, const MatmulArgs& a) {
  require(a.desc && a.packed && a.x && a.out, "matmul", "no null argument");
  require(a.m >= 0 && a.x_stride >= a.desc->k && a.out_stride >= a.desc->n(), "matmul",
          "strides cover rows");
  require(e.kernels->narrow || !(a.narrow_x || a.narrow_out), "matmul", "narrow rows where they are allowed");
  require(!a.norm_weight || e.kernels->norms || a.normed, "matmul", "room for what is normed");
  if (!a.m) return;
  if (!a.norm_weight || e.kernels->norms) return e.kernels->matmul(e, a);
  norm(e, {.x = a.x, .x_stride = a.x_stride, .weight = a.norm_weight, .eps = a.norm_eps, .out = a.normed,
           .out_stride = a.desc->k, .rows = a.m, .dim = a.desc->k});
  MatmulArgs plain = a;
  plain.x = a.normed;
  plain.x_stride = a.desc->k;
  plain.norm_weight = nullptr;
  e.kernels->matmul(e, plain);
}

void embed(const Exec& e, const EmbedArgs& a) {
  require(a.desc && a.packed && a.ids && a.out && a.desc->part_count == 1, "embed",
          "one part, no null argument");
  if (a.rows) e.kernels->embed(e, a);
}

void rope_table(const Exec& e, const RopeTableArgs& a) {
  require(a.positions && a.inv_freq && a.cos && a.sin && a.half > 0, "rope_table",
          "no null argument");
  if (a.rows) e.kernels->rope_table(e, a);
}

void kv_store(const Exec& e, const KvStoreArgs& a) {
  require_kv(a.kv, "kv_store");
  require(a.heads > 0 && a.heads % a.kv.kv_heads == 0, "kv_store", "heads % kv_heads == 0");
  require(a.qkv_stride >= int64_t{a.heads + 2 * a.kv.kv_heads} * a.kv.head_dim, "kv_store",
          "stride covers q, k and v");
  require(a.half >= 0 && 2 * a.half <= a.kv.head_dim, "kv_store", "rotation fits the head");
  require(a.qkv && a.slots && a.pages && (!a.half || (a.cos && a.sin)), "kv_store",
          "no null argument");
  if (e.kernels->kv_tail_bytes(a.kv))
    require(a.seqs && a.seq_count > 0 && a.tails, "kv_store", "sequences and tails are given");
  if (a.rows) e.kernels->kv_store(e, a);
}

void attention(const Exec& e, const AttentionArgs& a) {
  require_kv(a.kv, "attention");
  require(a.heads > 0 && a.heads % a.kv.kv_heads == 0, "attention", "heads % kv_heads == 0");
  const int64_t width = int64_t{a.heads} * a.kv.head_dim;
  require(a.q_stride >= width && a.out_stride >= width, "attention", "strides cover rows");
  require(a.q && a.out && a.seqs && a.page_table && a.pages, "attention", "no null argument");
  require(e.kernels->narrow || !a.narrow_out, "attention", "narrow rows where they are allowed");
  require(a.window >= 0 && a.max_context > 0, "attention", "window and context are positive");
  if (e.kernels->kv_tail_bytes(a.kv))
    require(a.k && a.tails && a.k_stride >= int64_t{a.kv.kv_heads} * a.kv.head_dim, "attention",
            "keys and tails are given");
  if (a.rows) e.kernels->attention(e, a);
}

void kv_tail(const Exec& e, const KvTailArgs& a) {
  require_kv(a.kv, "kv_tail");
  require(e.kernels->kv_tail_bytes(a.kv) > 0, "kv_tail", "the type keeps tails");
  require(a.k && a.seqs && a.tails && a.k_stride >= int64_t{a.kv.kv_heads} * a.kv.head_dim,
          "kv_tail", "keys and tails are given");
  if (a.rows) e.kernels->kv_tail(e, a);
}

void norm(const Exec& e, const NormArgs& a) {
  require(a.x && a.weight && a.out && a.x_stride >= a.dim && a.out_stride >= a.dim, "norm",
          "strides cover rows");
  if (a.rows) e.kernels->norm(e, a);
}

void gather(const Exec& e, const GatherArgs& a) {
  require(a.x && a.index && a.out && a.x_stride >= a.dim, "gather", "strides cover rows");
  if (a.rows) e.kernels->gather(e, a);
}

void sample(const Exec& e, const SampleArgs& a) {
  require(a.logits && a.params && a.results && a.vocab > 0 && a.logits_stride >= a.vocab, "sample",
          "strides cover rows");
  if (a.rows) e.kernels->sample(e, a);
}

}  // namespace orlop::ops
