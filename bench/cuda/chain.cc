// A layer's products for very few rows, one after another as a decode step has them: bench_cuda_chain.
// Of layers of Llama 8B and 1B, more than the second-level cache holds, in one captured graph; a small kernel stands
// where attention would. And one long product, as a model's last is. What bounds them is reading the weights (4.41
// TB/s on an H200): its share is said.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

using namespace orlop;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Product {
  LinearDesc desc;
  DeviceBuffer packed;
  Product(Device& device, const Kernels& kernels, const std::vector<uint16_t>& random, FileType type, int32_t group, int64_t n, int64_t k, bool gated) {
    desc.k = k;
    desc.part_count = gated ? 2 : 1;
    for (int p = 0; p < desc.part_count; ++p) desc.type[p] = type, desc.part_n[p] = gated ? n / 2 : n, desc.group[p] = group;
    desc.glu = gated ? Glu::silu : Glu::none;
    const size_t bytes = kernels.linear_bytes(desc);
    packed = DeviceBuffer(device, bytes);
    for (size_t at = 0; at < bytes; at += random.size() * 2)
      device.upload(packed.as<char>() + at, random.data(), std::min(random.size() * 2, bytes - at));
  }
};

void stream(Backend& gpu, FileType type, int32_t group) {
  Device& device = *gpu.exec().device;
  const Kernels& kernels = *gpu.exec().kernels;
  const std::vector<uint16_t> random(4 << 20, 0x3c01);
  Product p(device, kernels, random, type, group, 128256, 4096, false);
  DeviceBuffer x(device, 4096 * 4), out(device, 128256 * 4), work(device, kernels.matmul_workspace(p.desc, 1));
  std::vector<double> times;
  for (int i = 0; i < 13; ++i) {
    const double begin = now();
    for (int t = 0; t < 12; ++t) kernels.matmul(gpu.exec(), {&p.desc, p.packed.data(), x.as<float>(), 4096, out.as<float>(), 128256, 1, nullptr, false, work.data()});
    float one;
    device.download(&one, out.data(), sizeof one);
    times.push_back(now() - begin);
  }
  std::sort(times.begin() + 2, times.end());
  const double each = (times[7] - 8e-6) / 12;
  std::printf("head %s g%d: %.1f us, %.0f %% of reading its weights\n", info(type).name, int(group), each * 1e6, static_cast<double>(kernels.linear_bytes(p.desc)) / each / 4.41e10);
}

void time(Backend& gpu, const char* name, int64_t dim, int64_t ffn, int64_t qkv, FileType type, int32_t group, const std::vector<int64_t>& rows) {
  Device& device = *gpu.exec().device;
  const Kernels& kernels = *gpu.exec().kernels;
  constexpr int layers = 6;
  std::vector<uint16_t> random(4 << 20);
  uint32_t state = 1;
  for (uint16_t& v : random) {
    state = state * 1664525 + 1013904223;
    v = static_cast<uint16_t>((0x3c00 + (state >> 20) % 1024) | (state & 0x8000));
  }
  std::vector<Product> all;
  size_t bytes = 0;
  for (int i = 0; i < layers; ++i) {
    all.emplace_back(device, kernels, random, type, group, dim, dim, false);
    all.emplace_back(device, kernels, random, type, group, 2 * ffn, dim, true);
    all.emplace_back(device, kernels, random, type, group, dim, ffn, false);
    all.emplace_back(device, kernels, random, type, group, qkv, dim, false);
  }
  for (const Product& p : all) bytes += kernels.linear_bytes(p.desc);
  for (const int64_t m : rows) {
    const auto floats = [&](int64_t n) { return DeviceBuffer(device, static_cast<size_t>(m * n) * 4); };
    DeviceBuffer x = floats(dim), attended = floats(dim), inner = floats(ffn), out = floats(qkv), norm = floats(dim), room = floats(ffn);
    size_t work_bytes = 0;
    for (const Product& p : all) work_bytes = std::max(work_bytes, kernels.matmul_workspace(p.desc, m));
    DeviceBuffer work(device, work_bytes);
    const auto run = [&] {
      const double begin = now();
      for (size_t i = 0; i < all.size(); ++i) {
        const bool normed = i % 2, narrow = !normed;
        MatmulArgs a{&all[i].desc, all[i].packed.data(), (i % 4 == 0 ? attended : i % 4 == 2 ? inner : x).as<float>(), all[i].desc.k,
                     (i % 4 == 1 ? inner : i % 4 == 3 ? out : x).as<float>(), all[i].desc.n(), m, nullptr, narrow, work.data()};
        a.narrow_x = narrow;
        a.narrow_out = i % 4 == 1;
        if (normed) a.norm_weight = norm.as<float>(), a.norm_eps = 1e-5f, a.normed = room.as<float>();
        kernels.matmul(gpu.exec(), a);
        if (i % 4 == 3) kernels.norm(gpu.exec(), {out.as<float>(), qkv, norm.as<float>(), 1e-5f, room.as<float>(), dim, m, dim});
      }
      float one;
      device.download(&one, out.data(), sizeof one);
      return now() - begin;
    };
    std::vector<double> times;
    for (int i = 0; i < 13; ++i) times.push_back(run());
    std::sort(times.begin() + 2, times.end());
    const double each = (times[7] - 8e-6) / layers;  // less what starting and asking take
    std::printf("%s %s g%d, %d rows: %.1f us a layer, %.0f %% of reading its weights\n", name, info(type).name, int(group), int(m), each * 1e6,
                static_cast<double>(bytes) / layers / each / 4.41e10);
  }
}

}  // namespace

int main() try {
  const auto gpu = make_backend({.device = "cuda", .threads = 1, .deterministic = false});
  std::printf("%s\n", gpu->describe().c_str());
  for (const FileType type : {FileType::bf16, FileType::w4, FileType::q4_k, FileType::w8}) stream(*gpu, type, type == FileType::w4 ? 128 : 0);
  time(*gpu, "8b", 4096, 14336, 6144, FileType::bf16, 0, {1, 2});
  time(*gpu, "1b", 2048, 8192, 3072, FileType::bf16, 0, {1});
  time(*gpu, "8b", 4096, 14336, 6144, FileType::q4_k, 0, {1});
  time(*gpu, "8b", 4096, 14336, 6144, FileType::w4, 128, {1, 2, 4});
  return 0;
} catch (const Error& e) {
  std::printf("%s\n", e.what());
  return 77;
}
