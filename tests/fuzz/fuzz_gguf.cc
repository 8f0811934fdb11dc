// A GGUF file from anywhere: a typed error, or tensors whose every byte may be read, and a
// configuration in which every number is in its bounds.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "format/gguf.h"
#include "fuzz.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  orlop::fuzz::orderly([&] {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    orlop::Checkpoint checkpoint;
    checkpoint.kind = orlop::Checkpoint::Kind::gguf;
    checkpoint.path = "fuzz";
    orlop::parse_gguf(bytes, "fuzz", nullptr, checkpoint);
    for (const orlop::FileTensor& t : checkpoint.tensors) {
      orlop::fuzz::check_tensor(t);
      orlop::fuzz::require(checkpoint.find(t.name) == &t);
    }
    orlop::fuzz::check_config(checkpoint);
  });
  return 0;
}
