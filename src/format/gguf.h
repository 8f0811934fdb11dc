// Reader of one GGUF file, from bytes in memory.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "format/checkpoint.h"

namespace orlop {

// Fills gguf_version, meta, tensors and index of `out` from the file whose whole content is
// `bytes`. `name` is the file's name in messages; `file` (may be null) is what owns the bytes.
// Error(bad_format | unsupported) names file, key or tensor, and reason.
void parse_gguf(std::span<const std::byte> bytes, const std::string& name,
                const std::shared_ptr<MappedFile>& file, Checkpoint& out);

}  // namespace orlop
