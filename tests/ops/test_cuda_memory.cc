// Memory of the CUDA backend: what goes up and comes down is what was there, in order, whoever calls. Without a
// GPU it is skipped, saying why.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "../check.h"
#include "backend/backend.h"
#include "base/error.h"

using namespace orlop;
using namespace orlop::test;

namespace {

std::mt19937 rng(5);
size_t pick(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(rng); }

std::unique_ptr<Backend> make() { return make_backend({.device = "cuda", .threads = 1}); }

std::vector<unsigned char> random_bytes(size_t n) {
  std::vector<unsigned char> v(n);
  for (size_t i = 0; i < n; i += 4) {
    const uint32_t x = rng();
    std::memcpy(&v[i], &x, std::min<size_t>(4, n - i));
  }
  return v;
}

std::vector<unsigned char> read(Device& device, const DeviceBuffer& b) {
  std::vector<unsigned char> v(b.bytes());
  device.download(v.data(), b.data(), v.size());
  return v;
}

// The caller's memory changes as soon as upload() returns.
TEST(uploads_are_taken_when_they_return) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  const size_t size = 20'000'000;
  DeviceBuffer on(device, size);
  std::vector<unsigned char> want(size, 0);
  CHECK(read(device, on) == want);  // zeroed
  std::vector<unsigned char> host(3'000'000);
  const int rounds = is_short() ? 200 : 3000;
  for (int round = 0; round < rounds; ++round) {
    // Small ones as of a step; now and then more than the pinned ring has.
    const size_t n = round % 50 == 7 ? pick(1, host.size()) : round % 5 == 0 ? pick(1, 300'000) : pick(1, 5000);
    const size_t at = pick(0, size - n);
    std::memset(host.data(), round, n);
    host[pick(0, n - 1)] = static_cast<unsigned char>(~round);
    device.upload(on.as<unsigned char>() + at, host.data(), n);
    std::memcpy(&want[at], host.data(), n);
    std::memset(host.data(), 0xee, n);
  }
  CHECK(read(device, on) == want);
  std::vector<unsigned char> large = random_bytes(size);
  device.upload(on.data(), large.data(), size);
  std::vector<unsigned char> kept = large;
  std::memset(large.data(), 0, size);
  CHECK(read(device, on) == kept);
}

// Downloads of several steps under way; each sees what was there when it was called.
TEST(later_downloads_are_in_order) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  CHECK(device.asynchronous());
  DeviceBuffer on(device, 1'000'000);
  struct Open {
    uint64_t ticket;
    std::vector<unsigned char> to, want;
  };
  const int rounds = is_short() ? 60 : 600;
  std::vector<Open> open;
  uint64_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    const size_t n = round % 9 == 0 ? pick(1, on.bytes()) : pick(1, 4000);
    std::vector<unsigned char> bytes(n, static_cast<unsigned char>(round));
    device.upload(on.data(), bytes.data(), n);
    Open o{0, std::vector<unsigned char>(n, 0xaa), bytes};
    o.ticket = device.download_later(o.to.data(), on.data(), n);
    CHECK(o.ticket > last);
    last = o.ticket;
    device.fill(on.data(), 0xcc, n);
    open.push_back(std::move(o));
    if (open.size() == pick(1, 6) || open.size() > 6) {
      const size_t which = pick(0, open.size() - 1);
      device.wait(open[which].ticket);
      device.wait(open[which].ticket);  // at once
      for (size_t i = 0; i <= which; ++i) CHECK(open[i].to == open[i].want);
      open.erase(open.begin(), open.begin() + static_cast<long>(which) + 1);
    }
  }
  const uint64_t mark = device.download_later(nullptr, nullptr, 0);
  CHECK(mark > last);
  device.wait(mark);
  for (const Open& o : open) CHECK(o.to == o.want);
  device.wait(0);
  device.wait(mark);
}

// Pages of a cache on their way to the host: more than may be open at once, each in pieces from all over.
TEST(later_downloads_of_rows) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  const size_t rows = 32, row = 70'000, stride = 600'000;
  DeviceBuffer on(device, rows * stride);
  std::vector<std::vector<unsigned char>> to(is_short() ? 8 : 60, std::vector<unsigned char>(rows * row, 0xaa));
  uint64_t last = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    device.fill(on.data(), static_cast<int>(i), on.bytes());
    for (size_t r = 0; r < rows; ++r) device.fill(on.as<unsigned char>() + r * stride + 128 * i, static_cast<int>(r + i), 1000);
    last = device.download_rows_later(to[i].data(), on.as<unsigned char>() + 128 * i, rows, row, stride);
  }
  device.wait(last);
  size_t wrong = 0;
  for (size_t i = 0; i < to.size(); ++i)
    for (size_t r = 0; r < rows; ++r)
      for (size_t b = 0; b < row; ++b) wrong += to[i][r * row + b] != static_cast<unsigned char>(b < 1000 ? r + i : i);
  CHECK(wrong == 0);
}

// Pages that go to the host and come back beside what else runs: what was there when they were called for, whatever
// is written there since, and by whichever ticket they are waited for.
TEST(pages_go_and_come_beside_the_steps) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  const size_t pages = 24, rows = 8, row = 65'536, places = 40;
  DeviceBuffer on(device, rows * pages * row);  // [rows][pages]
  const auto at = [&](size_t page) { return on.as<unsigned char>() + page * row; };
  std::vector<int> have(pages, 0);  // each byte of a page; 0: as it was allocated
  struct Place {
    std::vector<unsigned char> bytes;
    int want = 0;
    uint64_t ticket = 0;  // of what is on its way there
  };
  std::vector<Place> host(places);
  for (Place& p : host) p.bytes.assign(rows * row, 0);
  const auto landed = [](Place& p) {
    p.ticket = 0;
    return std::all_of(p.bytes.begin(), p.bytes.end(), [&](unsigned char b) { return b == p.want; });
  };
  int value = 0, wrong = 0;
  for (int round = 0; round < (is_short() ? 300 : 4000); ++round) {
    const size_t page = pick(0, pages - 1);
    Place& place = host[pick(0, places - 1)];
    switch (pick(0, 6)) {
      case 0:
      case 1:  // out, and something else there at once
        if (place.ticket) continue;
        place.want = have[page];
        place.ticket = device.download_rows_later(place.bytes.data(), at(page), rows, row, pages * row);
        [[fallthrough]];
      case 2:
        have[page] = value = value % 255 + 1;
        for (size_t r = 0; r < rows; ++r) device.fill(at(page) + r * pages * row, value, row);
        break;
      case 3:
      case 4:  // in; the host's memory is free at once
        if (place.ticket) {
          device.wait(place.ticket);
          wrong += !landed(place);
        }
        device.upload_rows(at(page), place.bytes.data(), rows, row, pages * row);
        have[page] = place.want;
        place.want = 77;
        std::fill(place.bytes.begin(), place.bytes.end(), 77);
        break;
      case 5: {  // a step's result: in order with the pages that came, not with those that go
        unsigned char found[64];
        device.wait(device.download_later(found, at(page) + 3 * pages * row, sizeof found));
        for (const unsigned char b : found) wrong += b != have[page];
        break;
      }
      default:  // a mark covers all
        if (pick(0, 9)) break;
        device.wait(device.download_later(nullptr, nullptr, 0));
        for (Place& p : host)
          if (p.ticket) wrong += !landed(p);
    }
  }
  device.wait(device.download_later(nullptr, nullptr, 0));
  for (Place& p : host)
    if (p.ticket) wrong += !landed(p);
  const auto all = read(device, on);
  for (size_t b = 0; b < all.size(); ++b) wrong += all[b] != have[b / row % pages];
  CHECK(wrong == 0);
}

// Several threads pack into one storage: rows of bfloat16 lie there as in the file.
TEST(weights_from_many_threads) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  const Kernels& k = *backend->exec().kernels;
  struct Matrix {
    LinearDesc desc;
    std::vector<unsigned char> file;
    size_t at;
  };
  std::vector<Matrix> all;
  size_t bytes = 0;
  const int count = is_short() ? 8 : 40;
  for (int i = 0; i < count; ++i) {
    Matrix m;
    m.desc.k = static_cast<int64_t>(128 * pick(1, 16));
    m.desc.part_count = 1;
    m.desc.type[0] = FileType::bf16;
    m.desc.part_n[0] = static_cast<int64_t>(pick(1, 40) * 64);
    m.desc.compute = Compute::bf16;
    m.file = random_bytes(static_cast<size_t>(m.desc.k * m.desc.part_n[0]) * 2);
    // No NaN: a kernel may make another NaN of one.
    for (size_t b = 1; b < m.file.size(); b += 2) m.file[b] &= 0x3f;
    m.at = bytes;
    bytes += (k.linear_bytes(m.desc) + 255) / 256 * 256;
    all.push_back(std::move(m));
  }
  DeviceBuffer on(device, bytes);
  for (const int threads : {1, 3, 16}) {
    device.fill(on.data(), 0xff, bytes);
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (;;) {
        const size_t job = next++, i = job / 2;
        if (i >= all.size()) return;
        const Matrix& m = all[i];
        const int64_t tiles = k.linear_tiles(m.desc), cut = tiles / 3;
        LinearSource source;
        source.rows[0] = m.file.data();
        source.row_bytes[0] = static_cast<size_t>(m.desc.k) * 2;
        k.linear_pack(m.desc, source, job % 2 ? cut : 0, job % 2 ? tiles : cut, on.as<unsigned char>() + m.at);
      }
    };
    std::vector<std::thread> helpers;
    for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
    work();
    for (auto& t : helpers) t.join();
    const auto have = read(device, on);
    int wrong = 0;
    for (const Matrix& m : all) wrong += std::memcmp(&have[m.at], m.file.data(), m.file.size()) != 0;
    CHECK(wrong == 0);
  }
}

TEST(two_devices_at_once) {
  const auto a = make(), b = make();
  std::vector<std::thread> both;
  for (Backend* backend : {a.get(), b.get()})
    both.emplace_back([backend] {
      Device& device = *backend->exec().device;
      std::mt19937 own(3);
      for (int round = 0; round < 50; ++round) {
        std::vector<unsigned char> bytes(1 + own() % 500'000, static_cast<unsigned char>(own()));
        const DeviceBuffer on(device, bytes.size());
        device.upload(on.data(), bytes.data(), bytes.size());
        CHECK(read(device, on) == bytes);
      }
    });
  for (auto& t : both) t.join();
}

TEST(too_much_is_a_typed_error_and_nothing_more) {
  const auto backend = make();
  Device& device = *backend->exec().device;
  const size_t free = device.memory_available();
  CHECK(free > size_t{1} << 28);
  CHECK_THROWS(out_of_memory, "bytes", DeviceBuffer(device, size_t{1} << 45));
  CHECK_THROWS(out_of_memory, std::to_string(free + (size_t{1} << 30)).c_str(), DeviceBuffer(device, free + (size_t{1} << 30)));
  const DeviceBuffer on(device, 1000);
  CHECK(read(device, on) == std::vector<unsigned char>(1000, 0));
}

TEST(names_of_devices) {
  CHECK_THROWS(not_found, "GPU 1000", make_backend({.device = "cuda:1000"}));
  CHECK_THROWS(invalid_argument, "cuda:x", make_backend({.device = "cuda:x"}));
  CHECK(make_backend({.device = "cuda:0"}) != nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    make();
  } catch (const Error& e) {
    std::printf("SKIP %s\n", e.what());
    return 77;
  }
  return test_main(argc, argv);
}
