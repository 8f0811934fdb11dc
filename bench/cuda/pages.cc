// What pages on the move cost the steps beside them: steps that keep the GPU's memory busy for some 8 ms, as those of
// an 8B model do, with pages of it (2 MiB, in 32 pieces) that go to the host or come from it before each.
//   bench_cuda_pages [STEPS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "backend/backend.h"

using namespace orlop;

namespace {

constexpr size_t rows = 32, row = 65'536, pool = 512;  // [rows][pool][row]
constexpr size_t busy = size_t{2} << 30;
constexpr int fills = 16;

double milliseconds(const std::chrono::steady_clock::time_point& begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

struct Rig {
  std::unique_ptr<Backend> backend = make_backend({.device = "cuda", .threads = 1, .deterministic = false});
  Device& device = *backend->exec().device;
  DeviceBuffer cache{device, rows * pool * row}, work{device, busy};
  std::vector<unsigned char> spare = std::vector<unsigned char>(rows * row);
  std::vector<unsigned char> host = std::vector<unsigned char>(rows * row * pool);

  // Two steps are under way at most. Mean of a step, and of what the host does for its pages.
  template <class Move>
  void run(const char* what, int steps, int pages, const Move& move) {
    double moving = 0;
    std::deque<uint64_t> open;
    unsigned char result[64];
    device.wait(device.download_later(nullptr, nullptr, 0));
    const auto begin = std::chrono::steady_clock::now();
    size_t next = 0;
    for (int s = 0; s < steps; ++s) {
      const auto from = std::chrono::steady_clock::now();
      for (int p = 0; p < pages; ++p, next = (next + 1) % pool) move(cache.as<unsigned char>() + next * row, host.data() + next * rows * row);
      moving += milliseconds(from);
      for (int f = 0; f < fills; ++f) device.fill(work.data(), s, busy);
      open.push_back(device.download_later(result, work.data(), sizeof result));
      if (open.size() == 2) device.wait(open.front()), open.pop_front();
    }
    device.wait(open.back());
    const double all = milliseconds(begin);
    device.wait(device.download_later(nullptr, nullptr, 0));
    std::printf("%-42s %7.3f ms a step, of the host's time for pages %6.3f\n", what, all / steps, moving / steps);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 50;
  Rig r;
  Device& d = r.device;
  const auto in_order = [&](unsigned char* page, unsigned char* to) {
    for (size_t i = 0; i < rows; ++i) d.upload(page + i * pool * row, to + i * row, row);
  };
  const auto out = [&](unsigned char* page, unsigned char* to) { d.download_rows_later(to, page, rows, row, pool * row); };
  const auto in = [&](unsigned char* page, unsigned char* to) { d.upload_rows(page, to, rows, row, pool * row); };
  for (int again = 0; again < 2; ++again) {
    r.run("no pages", steps, 0, out);
    r.run("16 pages from the host, in order", steps, 16, in_order);
    r.run("16 pages from the host, beside", steps, 16, in);
    r.run("16 pages to the host, beside", steps, 16, out);
    r.run("8 each way", steps, 8, [&](unsigned char* page, unsigned char* to) { out(page, to), in(page, r.spare.data()); });
  }
}
