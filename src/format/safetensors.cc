// The format: https://huggingface.co/docs/safetensors ("Format"): eight bytes of little-endian
// header length, a JSON header, then the tensors' bytes without holes.
#include "format/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace orlop {
namespace {

constexpr size_t max_header = size_t{100} << 20;  // the format's own limit
constexpr size_t max_dims = 8;
constexpr size_t max_name = 1024;

struct NamedType {
  std::string_view name;
  FileType type;
};
constexpr std::array<NamedType, 8> known_types = {{{"F32", FileType::f32},
                                                   {"F16", FileType::f16},
                                                   {"BF16", FileType::bf16},
                                                   {"F8_E4M3", FileType::f8},
                                                   {"I8", FileType::int8},
                                                   {"U8", FileType::uint8},
                                                   {"I32", FileType::int32},
                                                   {"I64", FileType::int64}}};

// Types that the format knows and this reader does not take.
constexpr std::array<std::string_view, 16> other_types = {
    "BOOL",        "U16",         "I16", "U32",     "U64",     "F64", "F8_E5M2", "F8_E8M0",
    "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4",  "F6_E2M3", "F6_E3M2", "C64", "U4",      "I4"};

FileType type_of(const std::string& dtype, const std::string& where) {
  for (const NamedType& t : known_types)
    if (dtype == t.name) return t.type;
  if (std::find(other_types.begin(), other_types.end(), dtype) != other_types.end()) {
    std::string known;
    for (const NamedType& t : known_types) known += cat(known.empty() ? "" : ", ", t.name);
    fail(Status::unsupported, where, ": dtype ", dtype, " is not supported (", known, " are)");
  }
  fail(Status::bad_format, where, ": unknown dtype \"", printable(dtype), "\"");
}

uint64_t unsigned_of(const Json& value, const std::string& where, const char* field) {
  if (!value.is_number_unsigned())
    fail(Status::bad_format, where, ": ", field, " holds ", value.type_name(),
         value.is_number() ? " that is no whole number of 0 or more" : "",
         ", a count is needed");
  return value.get<uint64_t>();
}

struct Entry {
  FileTensor tensor;
  uint64_t begin = 0, end = 0;  // relative to the data section
};

Entry read_entry(const std::string& name, const Json& value, const std::string& file) {
  const std::string where = cat(file, ": tensor \"", printable(name), "\"");
  if (name.empty() || name.size() > max_name)
    fail(Status::bad_format, where, ": its name has ", name.size(), " bytes, 1 to ", max_name,
         " are allowed");
  if (!value.is_object()) fail(Status::bad_format, where, ": its entry is no JSON object");
  for (const auto& [key, unused] : value.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      fail(Status::bad_format, where, ": unknown key \"", printable(key), "\"");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key)) fail(Status::bad_format, where, ": \"", key, "\" is missing");

  const Json& dtype = value["dtype"];
  if (!dtype.is_string()) fail(Status::bad_format, where, ": dtype is no string");
  Entry entry;
  entry.tensor.name = name;
  entry.tensor.type = type_of(dtype.get_ref<const std::string&>(), where);

  const Json& shape = value["shape"];
  if (!shape.is_array()) fail(Status::bad_format, where, ": shape is no array");
  if (shape.size() > max_dims)
    fail(Status::bad_format, where, ": ", shape.size(), " dimensions, at most ", max_dims,
         " are allowed");
  uint64_t bytes = info(entry.tensor.type).block_bytes;
  for (const Json& dim : shape) {
    const uint64_t n = unsigned_of(dim, where, "shape");
    if (n == 0) fail(Status::bad_format, where, ": a dimension of its shape is 0");
    bytes = checked_mul(bytes, n, where.c_str());
    entry.tensor.shape.push_back(checked_cast<int64_t>(n, where.c_str()));
  }

  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    fail(Status::bad_format, where, ": data_offsets is no pair of numbers");
  entry.begin = unsigned_of(offsets[0], where, "data_offsets");
  entry.end = unsigned_of(offsets[1], where, "data_offsets");
  if (entry.end < entry.begin)
    fail(Status::bad_format, where, ": data_offsets end (", entry.end, ") before they begin (",
         entry.begin, ")");
  if (entry.end - entry.begin != bytes)
    fail(Status::bad_format, where, ": data_offsets span ", entry.end - entry.begin,
         " bytes, its shape and dtype need ", bytes);
  return entry;
}

void check_metadata(const Json& value, const std::string& file) {
  if (!value.is_object()) fail(Status::bad_format, file, ": __metadata__ is no JSON object");
  for (const auto& [key, text] : value.items())
    if (!text.is_string())
      fail(Status::bad_format, file, ": __metadata__ \"", printable(key), "\" is no string");
}

}  // namespace

std::vector<FileTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                          const std::shared_ptr<MappedFile>& file) {
  if (bytes.size() < 8)
    fail(Status::bad_format, name, ": ", bytes.size(),
         " bytes are too few for a safetensors header");
  uint64_t header_size = 0;
  for (int i = 7; i >= 0; --i) header_size = header_size << 8 | static_cast<uint8_t>(bytes[i]);
  if (header_size < 2 || header_size > max_header)
    fail(Status::bad_format, name, ": a header of ", header_size,
         " bytes, 2 to ", max_header, " are allowed (is this a safetensors file?)");
  checked_range(8, header_size, bytes.size(), cat(name, ": header").c_str());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  if (text[0] != '{')
    fail(Status::bad_format, name, ": the header does not start with '{'");

  const std::string what = cat(name, ": header");
  const Json header = parse_json(text, what.c_str(), {.max_depth = 8, .max_bytes = max_header});
  if (!header.is_object()) fail(Status::bad_format, what, ": no JSON object");

  const std::span<const std::byte> data = bytes.subspan(8 + header_size);
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__")
      check_metadata(value, name);
    else
      entries.push_back(read_entry(key, value, name));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin < b.begin; });

  std::vector<FileTensor> tensors;
  tensors.reserve(entries.size());
  uint64_t at = 0;
  const std::string* before = nullptr;
  for (Entry& entry : entries) {
    FileTensor& tensor = entry.tensor;
    const std::string where = cat(name, ": tensor \"", printable(tensor.name), "\"");
    checked_range(entry.begin, entry.end - entry.begin, data.size(), where.c_str());
    if (entry.begin < at)
      fail(Status::bad_format, where, ": its data overlaps that of \"", printable(*before), "\"");
    if (entry.begin > at)
      fail(Status::bad_format, where, ": ", entry.begin - at, " bytes before its data (from ", at,
           ") belong to no tensor");
    at = entry.end;
    tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    tensor.file = file;
    const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data.data());
    if (address % info(tensor.type).block_bytes != 0) {
      tensor.file = MappedFile::copy(name, tensor.data);
      tensor.data = tensor.file->bytes();
    }
    tensors.push_back(std::move(tensor));
    before = &tensors.back().name;
  }
  if (at != data.size())
    fail(Status::bad_format, name, ": ", data.size() - at, " bytes after the last tensor (from ",
         at, ") belong to no tensor");
  return tensors;
}

}  // namespace orlop
