// Reader of one safetensors file, from bytes in memory.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "format/mapped_file.h"

namespace orlop {

// The tensors of the file whose whole content is `bytes`, in the order of their data. `name` is the
// file's name in messages; `file` (may be null) is what owns the bytes. Tensors whose data is not
// aligned to its element are copied, so that every FileTensor::data may be read in place.
// Error(bad_format | unsupported) names file, tensor and reason.
std::vector<FileTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                          const std::shared_ptr<MappedFile>& file);

// A name from a file as it may stand in a message: cut, control bytes replaced.
std::string printable(std::string_view name);

}  // namespace orlop
