// A saved state from anywhere: a typed error, or a head within its limits and pages whose every
// byte may be read. Once more with a checksum put right, so that the fuzzer gets past it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "format/state.h"
#include "fuzz.h"

namespace {

void look(std::span<const std::byte> bytes) {
  const orlop::StateView v = orlop::parse_state(bytes, "fuzz", {.max_tokens = 1 << 16});
  using orlop::fuzz::require;
  require(v.head.page_tokens >= 1 && v.head.pages() >= 1);
  require(v.head.tokens.size() == size_t{v.head.pages()} * v.head.page_tokens);
  require(v.head.tokens.size() <= 1 << 16 && v.head.groups.size() <= 16);
  unsigned sum = 0;
  for (size_t g = 0; g < v.head.groups.size(); ++g)
    for (uint32_t i = v.head.groups[g].first; i < v.head.pages(); ++i) {
      const auto page = v.page(g, i);
      require(page.size() == v.head.groups[g].page_bytes);
      require(page.data() >= bytes.data() &&
              page.data() + page.size() <= bytes.data() + bytes.size());
      for (const std::byte b : page) sum += static_cast<unsigned>(b);
    }
  volatile unsigned sink = sum;
  (void)sink;
  v.signature_holds("a key of sixteen");
  if (v.checksum_holds()) return;
  std::vector<std::byte> right(bytes.begin(), bytes.end());
  const orlop::StateDigest sum_now = orlop::Hash().add(v.covered).end();
  std::memcpy(right.data() + v.covered.size(), sum_now.data(), sum_now.size());
  require(orlop::parse_state(right, "fuzz").checksum_holds());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  orlop::fuzz::orderly([&] { look({reinterpret_cast<const std::byte*>(data), size}); });
  return 0;
}
