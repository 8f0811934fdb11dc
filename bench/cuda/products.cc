// Products of the CUDA backend alone: bench_cuda_products [MODE]; MODE: fast or deterministic.
// For each layer of Llama 8B and 1B and each number of rows: the time of one product, and its bytes of weights a
// second as a share of what the card reads (4.41 TB/s on an H200), which bounds few rows. Several copies of each
// matrix take turns, more than the second-level cache holds; a list of products runs as one captured graph.
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

struct Shape {
  const char* name;
  int64_t n, k;
  bool gated, adds;
};

void time(Backend& gpu, const Shape& s, FileType type, int32_t group, const std::vector<int64_t>& rows) {
  Device& device = *gpu.exec().device;
  const Kernels& kernels = *gpu.exec().kernels;
  LinearDesc d;
  d.k = s.k;
  d.part_count = s.gated ? 2 : 1;
  for (int p = 0; p < d.part_count; ++p) d.type[p] = type, d.part_n[p] = s.gated ? s.n / 2 : s.n, d.group[p] = group;
  d.glu = s.gated ? Glu::silu : Glu::none;
  const size_t bytes = kernels.linear_bytes(d);
  const int copies = static_cast<int>(std::max<size_t>(2, (size_t{300} << 20) / bytes + 1)), turns = std::max(copies, 12);
  std::vector<DeviceBuffer> weights;
  std::vector<uint16_t> random(bytes / 2);
  uint32_t state = 1;
  for (uint16_t& v : random) v = static_cast<uint16_t>(0x3c00 + ((state = state * 1664525 + 1013904223) >> 20) % 1024) ^ static_cast<uint16_t>(state & 0x8000);
  for (int i = 0; i < copies; ++i) {
    weights.emplace_back(device, bytes);
    device.upload(weights.back().data(), random.data(), random.size() * 2);
  }
  for (const int64_t m : rows) {
    DeviceBuffer x(device, static_cast<size_t>(m * s.k) * 4), out(device, static_cast<size_t>(m * s.n) * 4), norm(device, static_cast<size_t>(s.k) * 4),
        room(device, static_cast<size_t>(m * s.k) * 4), work(device, kernels.matmul_workspace(d, m));
    const auto run = [&] {
      const double begin = now();
      for (int i = 0; i < turns; ++i) {
        MatmulArgs a{&d, weights[static_cast<size_t>(i % copies)].data(), x.as<float>(), s.k, out.as<float>(), d.n(), m, nullptr, false, work.data()};
        if (s.adds) {  // to the residual stream, what attention or the gate left narrow
          a.narrow_x = a.accumulate = true;
        } else {
          a.norm_weight = norm.as<float>();
          a.norm_eps = 1e-5f;
          a.normed = room.as<float>();
        }
        a.narrow_out = s.gated;
        kernels.matmul(gpu.exec(), a);
      }
      float one;
      device.download(&one, out.data(), sizeof one);
      return now() - begin;
    };
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) times.push_back(run());
    std::sort(times.begin() + 2, times.end());
    const double each = (times[5] - 8e-6) / turns;  // less what starting and asking take
    std::printf("%-14s %-5s g%-3d m %4d: %7.1f us, %5.2f TB/s %3.0f %%, %4.0f TFLOP/s\n", s.name, info(type).name, int(group), int(m), each * 1e6,
                static_cast<double>(bytes) / each / 1e12, static_cast<double>(bytes) / each / 4.41e10, 2.0 * static_cast<double>(m * s.n * s.k) / each / 1e12);
  }
}

}  // namespace

int main(int count, char** values) try {
  const bool fast = count < 2 || !std::strcmp(values[1], "fast");
  const auto gpu = make_backend({.device = "cuda", .threads = 1, .deterministic = !fast});
  std::printf("%s, %s\n", gpu->describe().c_str(), fast ? "fast" : "deterministic");
  const Shape shapes[] = {{"8b qkv", 6144, 4096, false, false}, {"8b out", 4096, 4096, false, true}, {"8b gate|up", 28672, 4096, true, false}, {"8b down", 4096, 14336, false, true},
                          {"8b head", 128256, 4096, false, false}, {"1b qkv", 3072, 2048, false, false}, {"1b out", 2048, 2048, false, true}, {"1b gate|up", 16384, 2048, true, false},
                          {"1b down", 2048, 8192, false, true}};
  for (const Shape& s : shapes) {
    const bool small = s.name[0] == '1';
    time(*gpu, s, FileType::bf16, 0, small ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 4096});
    if (!small) time(*gpu, s, FileType::w4, 128, {1, 2, 8, 16, 32, 64});
    if (!small) time(*gpu, s, FileType::w8, 0, {1, 32});
  }
  return 0;
} catch (const Error& e) {
  std::printf("%s\n", e.what());
  return 77;
}
