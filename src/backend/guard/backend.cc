// The guard's kernel table: each entry checks where its arguments lie, opens what they lie in and calls
// the CPU's reference kernel.
#include "backend/cpu/cpu.h"
#include "backend/cpu/threads.h"
#include "backend/guard/device.h"
#include "backend/guard/guard.h"
#include "base/error.h"

namespace orlop::guard {
namespace {

constexpr int max_threads = 1024;

const Kernels& reference() {
  static const Kernels table = cpu::make_kernels({.level = cpu::Isa::ref});
  return table;
}

// What Exec::queue points at.
struct Queue {
  GuardDevice& device;
  Exec reference;  // how the reference kernels are called
};

// count elements at p; or rows of `width` that begin `stride` apart.
template <class T>
void need(GuardDevice::Use& d, const T* p, int64_t count, const char* what) {
  if (count > 0) d.need(p, static_cast<size_t>(count) * sizeof(T), what);
}
template <class T>
void need_rows(GuardDevice::Use& d, const T* p, int64_t rows, int64_t stride, int64_t width,
               const char* what) {
  if (rows > 0) need(d, p, (rows - 1) * stride + width, what);
}

void check(GuardDevice::Use& d, const MatmulArgs& a) {
  const int64_t n = a.desc->n();
  d.need(a.packed, reference().linear_bytes(*a.desc), "matmul.packed");
  need_rows(d, a.x, a.m, a.x_stride, a.desc->k, "matmul.x");
  need_rows(d, a.out, a.m, a.out_stride, n, "matmul.out");
  if (a.bias) need(d, a.bias, a.desc->glu == Glu::none ? n : 2 * n, "matmul.bias");
  d.need(a.workspace, reference().matmul_workspace(*a.desc, a.m), "matmul.workspace");
}

void check(GuardDevice::Use& d, const EmbedArgs& a) {
  d.need(a.packed, reference().linear_bytes(*a.desc), "embed.packed");
  need(d, a.ids, a.rows, "embed.ids");
  for (int64_t i = 0; i < a.rows; ++i)
    if (a.ids[i] < 0) need(d, a.previous + (-1 - a.ids[i]), 1, "embed.previous");
  need(d, a.out, a.rows * a.desc->k, "embed.out");
}

void check(GuardDevice::Use& d, const RopeTableArgs& a) {
  need(d, a.positions, a.rows, "rope_table.positions");
  need(d, a.inv_freq, a.half, "rope_table.inv_freq");
  need(d, a.cos, a.rows * a.half, "rope_table.cos");
  need(d, a.sin, a.rows * a.half, "rope_table.sin");
}

// Tails of the seats in use.
void check_tails(GuardDevice::Use& d, const KvDesc& kv, const AttentionSeq* seqs, int32_t count,
                 const void* tails, const char* what) {
  const size_t bytes = reference().kv_tail_bytes(kv);
  if (!bytes) return;
  for (int32_t i = 0; i < count; ++i)
    d.need(static_cast<const unsigned char*>(tails) + static_cast<size_t>(seqs[i].seat) * bytes,
           bytes, what);
}

void check(GuardDevice::Use& d, const KvStoreArgs& a) {
  const int64_t width = int64_t{a.heads + 2 * a.kv.kv_heads} * a.kv.head_dim;
  need_rows(d, a.qkv, a.rows, a.qkv_stride, width, "kv_store.qkv");
  need(d, a.slots, a.rows, "kv_store.slots");
  need(d, a.cos, a.rows * a.half, "kv_store.cos");
  need(d, a.sin, a.rows * a.half, "kv_store.sin");
  if (a.q_norm) need(d, a.q_norm, a.kv.head_dim, "kv_store.q_norm");
  if (a.k_norm) need(d, a.k_norm, a.kv.head_dim, "kv_store.k_norm");
  const auto* pages = static_cast<const unsigned char*>(a.pages);
  const size_t page_bytes = reference().kv_page_bytes(a.kv);
  for (int64_t i = 0; i < a.rows; ++i)
    d.need(pages + static_cast<size_t>(a.slots[i] / a.kv.page_tokens) * page_bytes, page_bytes,
           "kv_store.pages");
  need(d, a.seqs, a.seq_count, "kv_store.seqs");
  check_tails(d, a.kv, a.seqs, a.seq_count, a.tails, "kv_store.tails");
}

void check(GuardDevice::Use& d, const AttentionArgs& a) {
  const int64_t width = int64_t{a.heads} * a.kv.head_dim;
  need_rows(d, a.q, a.rows, a.q_stride, width, "attention.q");
  need_rows(d, a.out, a.rows, a.out_stride, width, "attention.out");
  need(d, a.seqs, a.seq_count, "attention.seqs");
  const auto* pages = static_cast<const unsigned char*>(a.pages);
  const size_t page_bytes = reference().kv_page_bytes(a.kv);
  for (int32_t s = 0; s < a.seq_count; ++s) {
    const AttentionSeq& seq = a.seqs[s];
    const int32_t end = seq.pos_begin + seq.rows;
    const int32_t count = (end + a.kv.page_tokens - 1) / a.kv.page_tokens;
    need(d, a.page_table + seq.page_begin, count, "attention.page_table");
    for (int32_t i = 0; i < count; ++i)
      d.need(pages + static_cast<size_t>(a.page_table[seq.page_begin + i]) * page_bytes,
             page_bytes, "attention.pages");
  }
  if (reference().kv_tail_bytes(a.kv))
    need_rows(d, a.k, a.rows, a.k_stride, int64_t{a.kv.kv_heads} * a.kv.head_dim, "attention.k");
  check_tails(d, a.kv, a.seqs, a.seq_count, a.tails, "attention.tails");
  d.need(a.workspace,
         reference().attention_workspace(a.kv, a.heads, a.rows, a.max_context),
         "attention.workspace");
}

void check(GuardDevice::Use& d, const KvTailArgs& a) {
  need_rows(d, a.k, a.rows, a.k_stride, int64_t{a.kv.kv_heads} * a.kv.head_dim, "kv_tail.k");
  need(d, a.seqs, a.seq_count, "kv_tail.seqs");
  check_tails(d, a.kv, a.seqs, a.seq_count, a.tails, "kv_tail.tails");
}

void check(GuardDevice::Use& d, const NormArgs& a) {
  need_rows(d, a.x, a.rows, a.x_stride, a.dim, "norm.x");
  need(d, a.weight, a.dim, "norm.weight");
  need_rows(d, a.out, a.rows, a.out_stride, a.dim, "norm.out");
}

void check(GuardDevice::Use& d, const GatherArgs& a) {
  need(d, a.index, a.rows, "gather.index");
  for (int64_t i = 0; i < a.rows; ++i)
    need(d, a.x + a.index[i] * a.x_stride, a.dim, "gather.x");
  need(d, a.out, a.rows * a.dim, "gather.out");
}

void check(GuardDevice::Use& d, const SampleArgs& a) {
  need_rows(d, a.logits, a.rows, a.logits_stride, a.vocab, "sample.logits");
  need(d, a.params, a.rows, "sample.params");
  for (int32_t i = 0; i < a.rows; ++i) {
    const SampleRow& row = a.params[i];
    need(d, row.counts, row.count_n, "sample.counts");
    need(d, row.bias, row.bias_n, "sample.bias");
    need(d, row.forbidden, row.forbidden_n, "sample.forbidden");
    if (row.allowed) need(d, row.allowed, (a.vocab + 31) / 32, "sample.allowed");
  }
  need(d, a.results, a.rows, "sample.results");
  if (a.top) need(d, a.top, int64_t{a.rows} * a.top_stride, "sample.top");
  d.need(a.workspace, reference().sample_workspace(a.rows, a.vocab), "sample.workspace");
}

template <auto entry, class Args>
void call(const Exec& exec, const Args& args) {
  const Queue& queue = *static_cast<const Queue*>(exec.queue);
  GuardDevice::Use use(queue.device);
  check(use, args);
  ++queue.device.counters().kernel_calls;
  (reference().*entry)(queue.reference, args);
}

void pack(const LinearDesc& desc, const LinearSource& source, int64_t begin, int64_t end,
          void* packed) {
  GuardDevice& device = GuardDevice::of(packed);
  GuardDevice::Use use(device);
  use.need(packed, reference().linear_bytes(desc), "linear_pack");
  ++device.counters().kernel_calls;
  reference().linear_pack(desc, source, begin, end, packed);
}

// Entries that are not named here work on host arguments alone.
Kernels make_table() {
  Kernels k = reference();
  k.backend = "guard";
  k.linear_pack = pack;
  k.matmul = call<&Kernels::matmul, MatmulArgs>;
  k.embed = call<&Kernels::embed, EmbedArgs>;
  k.rope_table = call<&Kernels::rope_table, RopeTableArgs>;
  k.kv_store = call<&Kernels::kv_store, KvStoreArgs>;
  k.attention = call<&Kernels::attention, AttentionArgs>;
  k.kv_tail = call<&Kernels::kv_tail, KvTailArgs>;
  k.norm = call<&Kernels::norm, NormArgs>;
  k.gather = call<&Kernels::gather, GatherArgs>;
  k.sample = call<&Kernels::sample, SampleArgs>;
  return k;
}

class GuardBackend final : public Backend {
 public:
  explicit GuardBackend(cpu::ThreadChoice choice)
      : kernels_(make_table()),
        pool_(choice.threads),
        queue_{device_, {&reference(), &device_, &pool_, pool_.size()}},
        why_(std::move(choice.why)) {}

  Exec exec() override { return {&kernels_, &device_, &queue_, pool_.size()}; }
  Compute default_compute() const override { return Compute::bf16; }
  int threads() const override { return pool_.size(); }
  std::string threads_why() const override { return why_; }
  std::string describe() const override {
    return cat("guard: reference kernels over memory that nothing else can touch, ", pool_.size(),
               pool_.size() == 1 ? " thread (" : " threads (", why_, ")");
  }
  bool beside_processor() const override { return true; }  // as a GPU's: for tests
  const DeviceCounters* counters() const override { return &device_.counters(); }

 private:
  Kernels kernels_;
  GuardDevice device_;
  cpu::ThreadPool pool_;
  Queue queue_;
  std::string why_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(int threads) {
  if (threads < 0 || threads > max_threads)
    fail(Status::invalid_argument, "threads: ", threads, " is not between 0 (automatic) and ",
         max_threads);
  cpu::ThreadChoice choice = cpu::default_threads();
  if (threads > 0) choice = {threads, cat("as asked; ", choice.why)};
  return std::make_unique<GuardBackend>(std::move(choice));
}

}  // namespace orlop::guard
