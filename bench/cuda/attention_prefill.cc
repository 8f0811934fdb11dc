// Attention of prompts over paged caches on a GPU: 32 query heads of 128 over 8 of keys (or as said), for each type
// of cache and mode: median time of a call among others in a graph and TFLOP/s (4 operations for each query, key that
// it sees, head and dimension). Caches are rotated so that none is left in the second-level cache.
//   attention_prefill [heads kv_heads head_dim page_tokens [fast | deterministic]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

using namespace orlop;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Case {
  int sequences, rows, past, window;
};

// Microseconds of a call.
double time_of(const Exec& e, int heads, KvDesc kv, const Case& c) {
  const Kernels& k = *e.kernels;
  Device& device = *e.device;
  const int context = c.past + c.rows, each = (context + kv.page_tokens - 1) / kv.page_tokens, pages = each * c.sequences, rows = c.rows * c.sequences;
  const int row = (heads + 2 * kv.kv_heads) * kv.head_dim, width = heads * kv.head_dim;
  const size_t pool = k.kv_page_bytes(kv) * static_cast<size_t>(pages);
  const int pools = static_cast<int>(std::max<size_t>((size_t{200} << 20) / pool + 1, 2));
  const DeviceBuffer cache(device, pool * static_cast<size_t>(pools)), tails(device, k.kv_tail_bytes(kv) * static_cast<size_t>(c.sequences) + 64),
      qkv(device, size_t{4} * static_cast<size_t>(row) * static_cast<size_t>(rows)), out(device, size_t{4} * static_cast<size_t>(width) * static_cast<size_t>(rows)),
      work(device, k.attention_workspace(kv, heads, rows, context));
  std::mt19937 random(1);
  std::vector<uint16_t> some(size_t{1} << 20);  // small numbers of both signs, as bf16, and any codes
  for (uint16_t& x : some) x = static_cast<uint16_t>((random() & 0x807f) | (0x3d00 + (random() % 3 << 7)));
  std::vector<float> normal(size_t{1} << 20);
  for (float& x : normal) x = std::normal_distribution<float>()(random);
  const auto fill = [&](const DeviceBuffer& b, const void* from, size_t bytes) {
    size_t filled = std::min(bytes, b.bytes());
    for (device.upload(b.data(), from, filled); filled < b.bytes(); filled *= 2)
      device.copy(b.as<char>() + filled, b.data(), std::min(filled, b.bytes() - filled));
  };
  fill(cache, some.data(), 2 * some.size());
  fill(qkv, normal.data(), 4 * normal.size());
  std::vector<AttentionSeq> seqs;
  for (int i = 0; i < c.sequences; ++i) seqs.push_back({i * c.rows, c.rows, c.past, i * each, i});
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), random);
  const DeviceBuffer device_seqs(device, sizeof(AttentionSeq) * seqs.size()), device_table(device, 4 * table.size());
  device.upload(device_seqs.data(), seqs.data(), device_seqs.bytes());
  device.upload(device_table.data(), table.data(), device_table.bytes());
  AttentionArgs a{};
  a.kv = kv;
  a.heads = heads;
  a.q = qkv.as<float>();
  a.q_stride = row;
  a.k = a.q + width;
  a.k_stride = row;
  a.tails = tails.data();
  a.out = out.as<float>();
  a.out_stride = width;
  a.narrow_out = true;
  a.seqs = device_seqs.as<AttentionSeq>();
  a.seq_count = c.sequences;
  a.rows = rows;
  a.max_context = context;
  a.page_table = device_table.as<int32_t>();
  a.scale = 0.088f;
  a.window = c.window;
  a.workspace = work.data();
  std::vector<double> times;
  const int calls = std::max(8, pools);
  for (int round = 0; round < 12; ++round) {
    device.download(some.data(), out.data(), 4);
    const double begin = seconds();
    for (int i = 0; i < calls; ++i) {
      a.pages = cache.as<char>() + pool * static_cast<size_t>(i % pools);
      k.attention(e, a);
    }
    device.download(some.data(), out.data(), 4);
    if (round >= 3) times.push_back((seconds() - begin) / calls);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2] * 1e6;
}

}  // namespace

int main(int count, char** values) try {
  const auto number = [&](int i, int otherwise) { return count > i ? std::atoi(values[i]) : otherwise; };
  if (count > 5 && std::strcmp(values[5], "fast") && std::strcmp(values[5], "deterministic")) {
    std::printf("%s is neither fast nor deterministic\n", values[5]);
    return 2;
  }
  const int heads = number(1, 32), kv_heads = number(2, 8), dim = number(3, 128), page = number(4, 16);
  const Case cases[] = {{1, 4096, 0, 0}, {1, 16384, 0, 0}, {8, 512, 0, 0}, {32, 128, 0, 0}, {1, 512, 8192, 0}, {1, 4096, 0, 1024},
                        {1, 16, 4000, 0}, {1, 40, 4000, 0},  {1, 128, 4000, 0}, {4, 16, 4000, 0},  {4, 64, 4000, 0},   {1, 40, 16000, 0}, {1, 40, 500, 0}};
  for (const bool deterministic : {false, true}) {
    if (count > 5 && deterministic == (std::strcmp(values[5], "fast") == 0)) continue;
    const auto backend = make_backend({.device = "cuda", .threads = 1, .deterministic = deterministic});
    std::printf("%s; heads %d/%d of %d, pages of %d; us a call, TFLOP/s\n%9s %6s %6s %6s", deterministic ? "deterministic" : "fast", heads, kv_heads, dim, page, "sequences",
                "rows", "past", "window");
    const KvType types[] = {KvType::bf16, KvType::f16, KvType::int8, KvType::uint4};
    for (const KvType t : types) std::printf("  %14s", name(t));
    std::printf("\n");
    for (const Case& c : cases) {
      std::printf("%9d %6d %6d %6d", c.sequences, c.rows, c.past, c.window);
      double seen = 0;  // keys, by all rows of a sequence
      for (int i = 0; i < c.rows; ++i) seen += c.window ? std::min(c.window, c.past + i + 1) : c.past + i + 1;
      for (const KvType type : types) {
        const double us = time_of(backend->exec(), heads, {type, kv_heads, dim, page}, c);
        std::printf("  %8.1f %5.0f", us, 4e-6 * seen * c.sequences * heads * dim / us);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
} catch (const Error& e) {
  std::printf("%s\n", e.what());
  return 77;
}
