// A safetensors file from anywhere: a typed error, or tensors whose every byte may be read.
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/error.h"
#include "format/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  orlop::fuzz::orderly([&] {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    for (const orlop::FileTensor& t : orlop::parse_safetensors(bytes, "fuzz", nullptr))
      orlop::fuzz::check_tensor(t);
  });
  return 0;
}
