// Decode attention over paged caches on a GPU: one row a sequence, 32 query heads of 128 over 8 of keys (or as
// said), for each type of cache, batch and context: median time of a call among others in a graph, and bytes of
// keys and values a second. Caches are rotated so that none is left in the second-level cache.
//   attention [heads kv_heads head_dim page_tokens]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

using namespace orlop;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Bench {
 public:
  Bench(bool deterministic, int heads, KvDesc kv)
      : backend_(make_backend({.device = "cuda", .threads = 1, .deterministic = deterministic})), e_(backend_->exec()), heads_(heads), kv_(kv) {}

  // Microseconds of a call; bytes of the cache that it reads.
  double time(int batch, int context, double* bytes) {
    const Kernels& k = *e_.kernels;
    Device& device = *e_.device;
    const size_t page = k.kv_page_bytes(kv_), tail = k.kv_tail_bytes(kv_);
    const int each = (context + kv_.page_tokens - 1) / kv_.page_tokens, pages = each * batch;
    const size_t pool = page * static_cast<size_t>(pages);
    *bytes = static_cast<double>(page) / kv_.page_tokens * context * batch;
    const int pools = static_cast<int>(std::clamp<size_t>((size_t{600} << 20) / pool + 1, 2, 32));
    const DeviceBuffer cache(device, pool * static_cast<size_t>(pools)), tails(device, tail * static_cast<size_t>(batch) + 64);
    std::mt19937 random(1);
    std::vector<uint16_t> some(size_t{1} << 20);  // small numbers of both signs, as bf16, and any codes
    for (uint16_t& x : some) x = static_cast<uint16_t>((random() & 0x807f) | (0x3d00 + (random() % 3 << 7)));
    size_t filled = std::min(2 * some.size(), cache.bytes());
    for (device.upload(cache.data(), some.data(), filled); filled < cache.bytes(); filled *= 2)
      device.copy(cache.as<char>() + filled, cache.data(), std::min(filled, cache.bytes() - filled));
    const int row = (heads_ + 2 * kv_.kv_heads) * kv_.head_dim, width = heads_ * kv_.head_dim;
    std::vector<float> qkv(static_cast<size_t>(row * batch));
    for (float& x : qkv) x = std::normal_distribution<float>()(random);
    std::vector<AttentionSeq> seqs;
    for (int i = 0; i < batch; ++i) seqs.push_back({i, 1, context - 1, i * each, i});
    std::vector<int32_t> table(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    const DeviceBuffer dq(device, 4 * qkv.size()), ds(device, sizeof(AttentionSeq) * seqs.size()), dt(device, 4 * table.size()),
        out(device, 4 * static_cast<size_t>(width * batch)), work(device, k.attention_workspace(kv_, heads_, batch, context));
    device.upload(dq.data(), qkv.data(), dq.bytes());
    device.upload(ds.data(), seqs.data(), ds.bytes());
    device.upload(dt.data(), table.data(), dt.bytes());
    AttentionArgs a{};
    a.kv = kv_;
    a.heads = heads_;
    a.q = dq.as<float>();
    a.q_stride = row;
    a.k = a.q + width;
    a.k_stride = row;
    a.tails = tails.data();
    a.out = out.as<float>();
    a.out_stride = width;
    a.narrow_out = true;
    a.seqs = ds.as<AttentionSeq>();
    a.seq_count = a.rows = batch;
    a.max_context = context;
    a.page_table = dt.as<int32_t>();
    a.scale = 0.088f;
    a.workspace = work.data();
    std::vector<double> times;
    const int calls = std::max(32, pools);
    double begin = seconds();
    for (int round = 0; round < 24 && (round < 7 || seconds() - begin < 0.15); ++round) {
      device.download(some.data(), out.data(), 4);
      const double t = seconds();
      for (int i = 0; i < calls; ++i) {
        a.pages = cache.as<char>() + pool * static_cast<size_t>(i % pools);
        k.attention(e_, a);
      }
      device.download(some.data(), out.data(), 4);
      if (round >= 3) times.push_back((seconds() - t) / calls);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    return times[times.size() / 2] * 1e6;
  }

 private:
  std::unique_ptr<Backend> backend_;
  Exec e_;
  int heads_;
  KvDesc kv_;
};

}  // namespace

int main(int count, char** values) try {
  const auto number = [&](int i, int otherwise) { return count > i ? std::atoi(values[i]) : otherwise; };
  const int heads = number(1, 32), kv_heads = number(2, 8), dim = number(3, 128), page = number(4, 32);
  struct Case {
    int batch, context;
  };
  const Case cases[] = {{1, 128}, {1, 1024}, {1, 8192}, {1, 32768}, {8, 1024}, {32, 192}, {32, 2048}, {64, 8192}, {128, 192}, {256, 192}, {256, 1024}, {512, 192}};
  for (const bool deterministic : {false, true}) {
    std::printf("%s; heads %d/%d of %d, pages of %d; us a call, share of 4.41 TB/s\n%6s %7s", deterministic ? "deterministic" : "fast", heads, kv_heads, dim, page, "batch", "context");
    const KvType types[] = {KvType::bf16, KvType::f16, KvType::int8, KvType::uint4};
    for (const KvType t : types) std::printf("  %14s", name(t));
    std::printf("\n");
    for (const Case& c : cases) {
      if (deterministic && (c.batch * c.context < 1 << 16) && c.context != 8192) continue;
      std::printf("%6d %7d", c.batch, c.context);
      for (const KvType type : types) {
        double bytes = 0;
        const double us = Bench(deterministic, heads, {type, kv_heads, dim, page}).time(c.batch, c.context, &bytes);
        std::printf("  %8.1f %4.0f%%", us, bytes / us / 4.41e6 * 100);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
} catch (const Error& e) {
  std::printf("%s\n", e.what());
  return 77;
}
