// What every reader of tensors needs: names and places for messages, single numbers.
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "format/quant_tensors.h"
#include "format/safetensors.h"

namespace orlop {

std::string printable(std::string_view name) {
  std::string out(name.substr(0, 120));
  if (out.size() < name.size()) {
    while (!out.empty() && (static_cast<unsigned char>(name[out.size()]) & 0xc0) == 0x80)
      out.pop_back();  // not inside a code point
    out += "...";
  }
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

std::string tensor_place(const FileTensor& t) {
  return cat(t.file ? t.file->path() : "checkpoint", ": tensor ", printable(t.name));
}

float float_element(const FileTensor& t, int64_t i) {
  const std::byte* p = t.data.data() + static_cast<size_t>(i) * info(t.type).block_bytes;
  uint16_t h;
  float f;
  switch (t.type) {
    case FileType::f32:
      std::memcpy(&f, p, 4);
      return f;
    case FileType::f16:
      std::memcpy(&h, p, 2);
      return f16_to_f32(h);
    case FileType::bf16:
      std::memcpy(&h, p, 2);
      return bf16_to_f32(h);
    default:
      fail(Status::unsupported, tensor_place(t), " holds ", info(t.type).name,
           ", numbers in f32, f16 or bf16 are needed");
  }
}

}  // namespace orlop
