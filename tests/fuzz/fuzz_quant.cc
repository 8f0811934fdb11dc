// A quantized checkpoint from anywhere: two bytes give the matrix's shape, a line of JSON is its
// quantization_config, the rest is a safetensors file. A typed error, or rows that kernels may
// read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "format/quant.h"
#include "format/safetensors.h"
#include "fuzz.h"

namespace {

void check(const orlop::QuantMatrix& m, int64_t n, int64_t k) {
  using orlop::FileType;
  using orlop::fuzz::require;
  require(orlop::has_groups(m.type) && m.rows && m.group >= 0 && m.group % 32 == 0 && m.group < k);
  if (!m.k_map.empty()) {  // every element once
    std::vector<int32_t> sorted = m.k_map;
    std::sort(sorted.begin(), sorted.end());
    require(sorted.size() == static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) require(sorted[static_cast<size_t>(i)] == i);
  }
  const int64_t groups = m.group ? (k + m.group - 1) / m.group : 1;
  std::vector<uint8_t> code(static_cast<size_t>(k));
  std::vector<float> scale(static_cast<size_t>(groups)), min(scale.size());
  for (int64_t r = 0; r < n; ++r) {
    m.rows->row(r, code.data(), scale.data(), min.data());
    for (const float s : scale) require(std::isfinite(s));
    if (m.type == FileType::w4 || m.type == FileType::w4z)
      for (const uint8_t c : code) require(c < 16);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const int64_t n = data[0] + 1, k = data[1] + 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t end = std::min(text.find('\n'), text.size());
  orlop::fuzz::orderly([&] {
    orlop::Checkpoint checkpoint;
    checkpoint.kind = orlop::Checkpoint::Kind::hugging_face;
    checkpoint.path = "fuzz";
    checkpoint.config = orlop::Json::object();
    checkpoint.config["quantization_config"] =
        orlop::parse_json(text.substr(0, end), "fuzz", {.max_bytes = 1 << 20});
    const auto scheme = orlop::QuantScheme::open(checkpoint);
    if (!scheme || end == text.size()) return;
    orlop::fuzz::require(!scheme->summary().empty());
    // Aligned as a file in memory is.
    const std::string_view file = text.substr(end + 1);
    std::vector<uint64_t> words(file.size() / 8 + 1);
    std::copy(file.begin(), file.end(), reinterpret_cast<char*>(words.data()));
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(words.data()),
                                           file.size());
    checkpoint.tensors = orlop::parse_safetensors(bytes, "fuzz", nullptr);
    for (size_t i = 0; i < checkpoint.tensors.size(); ++i)
      checkpoint.index.emplace(checkpoint.tensors[i].name, i);
    if (scheme->holds("m")) check(scheme->matrix("m", n, k), n, k);
  });
  return 0;
}
