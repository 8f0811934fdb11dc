// The format: ggml's docs/gguf.md (versions 2 and 3, little-endian), and ggml's list of type ids.
#include "format/gguf.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "format/safetensors.h"

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

namespace orlop {
namespace {

constexpr uint64_t max_key = 65535;
constexpr uint64_t max_tensor_name = 255;
constexpr uint64_t max_array = uint64_t{1} << 24;   // elements of one array
constexpr uint64_t max_elements = uint64_t{1} << 26;  // of all arrays of a file
constexpr uint64_t max_alignment = uint64_t{1} << 20;

enum class ValueType : uint32_t {
  u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64,
};

// Bytes that one value takes at least.
uint64_t least_size(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
    case ValueType::string:  // its length
      return 8;
    case ValueType::array:
      return 12;
  }
  return 0;
}

struct GgmlType {
  uint32_t id;
  const char* name;
  std::optional<FileType> type;
};
constexpr GgmlType ggml_types[] = {
    {0, "F32", FileType::f32},      {1, "F16", FileType::f16},
    {2, "Q4_0", FileType::q4_0},    {3, "Q4_1", FileType::q4_1},
    {4, "Q4_2 (removed)", {}},      {5, "Q4_3 (removed)", {}},
    {6, "Q5_0", FileType::q5_0},    {7, "Q5_1", FileType::q5_1},
    {8, "Q8_0", FileType::q8_0},    {9, "Q8_1", {}},
    {10, "Q2_K", FileType::q2_k},   {11, "Q3_K", FileType::q3_k},
    {12, "Q4_K", FileType::q4_k},   {13, "Q5_K", FileType::q5_k},
    {14, "Q6_K", FileType::q6_k},   {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},            {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},            {19, "IQ1_S", {}},
    {20, "IQ4_NL", FileType::iq4_nl}, {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},              {23, "IQ4_XS", {}},
    {24, "I8", {}},                 {25, "I16", {}},
    {26, "I32", {}},                {27, "I64", {}},
    {28, "F64", {}},                {29, "IQ1_M", {}},
    {30, "BF16", FileType::bf16},   {31, "Q4_0_4_4 (removed)", {}},
    {32, "Q4_0_4_8 (removed)", {}}, {33, "Q4_0_8_8 (removed)", {}},
    {34, "TQ1_0", {}},              {35, "TQ2_0", {}},
    {36, "IQ4_NL_4_4 (removed)", {}}, {37, "IQ4_NL_4_8 (removed)", {}},
    {38, "IQ4_NL_8_8 (removed)", {}}, {39, "MXFP4", {}},
};

FileType type_of(uint32_t id, const std::string& where) {
  for (const GgmlType& t : ggml_types) {
    if (t.id != id) continue;
    if (t.type) return *t.type;
    fail(Status::unsupported, where, ": type ", t.name, " is not supported");
  }
  fail(Status::bad_format, where, ": unknown type number ", id);
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  // `what` is only made into words when the read fails.
  template <class T>
  T number(const char* what) {
    need(sizeof(T), what);
    T v;
    std::memcpy(&v, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return v;
  }
  std::string_view text(uint64_t limit, const char* what) {
    const uint64_t n = number<uint64_t>(what);
    if (n > limit)
      fail(Status::bad_format, name_, ": ", what, " at byte ", at_ - 8, " claims ", n,
           " bytes, at most ", limit, " are allowed");
    need(n, what);
    const std::string_view s(reinterpret_cast<const char*>(bytes_.data()) + at_, n);
    at_ += n;
    return s;
  }
  void need(uint64_t n, const char* what) const {
    if (n > left())
      fail(Status::bad_format, name_, ": ends inside ", what, ": ", n, " bytes are needed at byte ",
           at_, ", ", left(), " are left");
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  size_t at_ = 0;
};

bool plain_name(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name,
         const std::shared_ptr<MappedFile>& file, Checkpoint& out)
      : bytes_(bytes), name_(name), file_(file), out_(out), in_(bytes, name_) {}

  void run() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      fail(Status::bad_format, name_, ": does not start with the magic \"GGUF\"");
    in_.number<uint32_t>("the magic");
    const uint32_t version = in_.number<uint32_t>("the version");
    if (version != 2 && version != 3) {
      if (version != 0 && (version & 0xffff) == 0)
        fail(Status::unsupported, name_, ": is a big-endian GGUF file; only little-endian is read");
      if (version == 1)
        fail(Status::unsupported, name_, ": is GGUF version 1; versions 2 and 3 are read");
      fail(Status::unsupported, name_, ": is GGUF version ", version,
           "; versions 2 and 3 are read");
    }
    out_.gguf_version = version;
    const uint64_t tensors = in_.number<uint64_t>("the tensor count");
    const uint64_t keys = in_.number<uint64_t>("the metadata count");
    // The least that an entry takes: key length, one letter, type, one byte | name length, one
    // letter, rank, one dimension, type, offset.
    count(keys, 8 + 1 + 4 + 1, "metadata entries");
    count(tensors, 8 + 1 + 4 + 8 + 4 + 8, "tensors");
    out_.meta.reserve(keys);
    for (uint64_t i = 0; i < keys; ++i) metadata();
    alignment();
    read_tensors(tensors);
  }

 private:
  void count(uint64_t n, uint64_t least, const char* what) {
    if (n > in_.left() / least)
      fail(Status::bad_format, name_, ": claims ", n, " ", what, ", its ", bytes_.size(),
           " bytes cannot hold them");
  }

  void metadata() {
    const std::string_view key = in_.text(max_key, "a metadata key");
    if (key.empty() || !plain_name(key))
      fail(Status::bad_format, name_, ": the metadata key \"", printable(key), "\" at byte ",
           in_.at() - key.size(), " is empty or holds other than printable ASCII");
    const std::string where = cat("metadata \"", printable(key), "\"");
    const uint32_t type = in_.number<uint32_t>(where.c_str());
    MetaValue value = read_value(type, where);
    if (!out_.meta.emplace(std::string(key), std::move(value)).second)
      fail(Status::bad_format, name_, ": ", where, " is there twice");
  }

  ValueType value_type(uint32_t type, const std::string& where) {
    if (type > static_cast<uint32_t>(ValueType::f64))
      fail(Status::bad_format, name_, ": ", where, ": unknown value type number ", type);
    return static_cast<ValueType>(type);
  }

  bool boolean(const char* what) {
    const uint8_t v = in_.number<uint8_t>(what);
    if (v > 1)
      fail(Status::bad_format, name_, ": ", what, ": a truth value is ", int{v}, ", not 0 or 1");
    return v;
  }

  MetaValue read_value(uint32_t type_id, const std::string& where) {
    const char* what = where.c_str();
    switch (value_type(type_id, where)) {
      case ValueType::u8: return uint64_t{in_.number<uint8_t>(what)};
      case ValueType::i8: return int64_t{in_.number<int8_t>(what)};
      case ValueType::u16: return uint64_t{in_.number<uint16_t>(what)};
      case ValueType::i16: return int64_t{in_.number<int16_t>(what)};
      case ValueType::u32: return uint64_t{in_.number<uint32_t>(what)};
      case ValueType::i32: return int64_t{in_.number<int32_t>(what)};
      case ValueType::f32: return double{in_.number<float>(what)};
      case ValueType::boolean: return boolean(what);
      case ValueType::string: return std::string(in_.text(bytes_.size(), what));
      case ValueType::array: return read_array(where);
      case ValueType::u64: return in_.number<uint64_t>(what);
      case ValueType::i64: return in_.number<int64_t>(what);
      case ValueType::f64: return in_.number<double>(what);
    }
    fail(Status::internal, name_, ": ", where, ": a value type without a reader");
  }

  template <class T, class Out>
  MetaArray numbers(uint64_t n, const std::string& where) {
    in_.need(n * sizeof(T), where.c_str());  // n is at most max_array: no overflow
    std::vector<Out> out(n);
    for (Out& v : out) {
      const T number = in_.number<T>(where.c_str());
      if constexpr (std::is_same_v<T, uint64_t>)
        v = checked_cast<int64_t>(number, where.c_str());
      else
        v = number;
    }
    return out;
  }

  MetaArray read_array(const std::string& where) {
    const uint32_t type_id = in_.number<uint32_t>(where.c_str());
    const ValueType type = value_type(type_id, where);
    const uint64_t n = in_.number<uint64_t>(where.c_str());
    if (type == ValueType::array)
      fail(Status::unsupported, name_, ": ", where, ": arrays of arrays are not supported");
    if (n > in_.left() / least_size(type))
      fail(Status::bad_format, name_, ": ", where, " claims ", n, " elements, the ", in_.left(),
           " bytes that are left cannot hold them");
    elements_ += std::min(n, max_array + 1);
    if (n > max_array || elements_ > max_elements)
      fail(Status::bad_format, name_, ": ", where, " claims ", n, " elements, at most ", max_array,
           " an array and ", max_elements, " a file are allowed");
    switch (type) {
      case ValueType::u8: return numbers<uint8_t, int64_t>(n, where);
      case ValueType::i8: return numbers<int8_t, int64_t>(n, where);
      case ValueType::u16: return numbers<uint16_t, int64_t>(n, where);
      case ValueType::i16: return numbers<int16_t, int64_t>(n, where);
      case ValueType::u32: return numbers<uint32_t, int64_t>(n, where);
      case ValueType::i32: return numbers<int32_t, int64_t>(n, where);
      case ValueType::u64: return numbers<uint64_t, int64_t>(n, where);
      case ValueType::i64: return numbers<int64_t, int64_t>(n, where);
      case ValueType::f32: return numbers<float, double>(n, where);
      case ValueType::f64: return numbers<double, double>(n, where);
      case ValueType::boolean: {
        std::vector<int64_t> out(n);
        for (int64_t& v : out) v = boolean(where.c_str());
        return out;
      }
      case ValueType::string: {
        std::vector<std::string> out;
        out.reserve(n);
        for (uint64_t i = 0; i < n; ++i) out.emplace_back(in_.text(bytes_.size(), where.c_str()));
        return out;
      }
      case ValueType::array: break;
    }
    fail(Status::internal, name_, ": ", where, ": an element type without a reader");
  }

  void alignment() {
    const auto it = out_.meta.find("general.alignment");
    if (it == out_.meta.end()) return;
    const uint64_t* v = std::get_if<uint64_t>(&it->second);
    if (!v || *v < 8 || *v > max_alignment || !std::has_single_bit(*v))
      fail(Status::bad_format, name_, ": general.alignment ",
           v ? cat("is ", *v) : std::string("is no unsigned number"),
           ", a power of two from 8 to ", max_alignment, " is needed");
    alignment_ = *v;
  }

  struct Entry {
    uint64_t offset = 0, size = 0;
    size_t tensor = 0;
  };

  Entry tensor_info() {
    const std::string_view name = in_.text(max_tensor_name, "a tensor name");
    if (name.empty() || !plain_name(name))
      fail(Status::bad_format, name_, ": the tensor name \"", printable(name), "\" at byte ",
           in_.at() - name.size(), " is empty or holds other than printable ASCII");
    FileTensor tensor;
    tensor.name = name;
    tensor.file = file_;
    const std::string where = cat(name_, ": tensor \"", printable(name), "\"");
    const std::string what = cat("tensor \"", printable(name), "\"");
    const uint32_t rank = in_.number<uint32_t>(what.c_str());
    if (rank < 1 || rank > 4)
      fail(Status::bad_format, where, ": ", rank, " dimensions, 1 to 4 are allowed");
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      const uint64_t n = in_.number<uint64_t>(what.c_str());
      if (n == 0) fail(Status::bad_format, where, ": dimension ", i, " is 0");
      elements = checked_mul(elements, n, where.c_str());
      tensor.shape.push_back(checked_cast<int64_t>(n, where.c_str()));
    }
    tensor.type = type_of(in_.number<uint32_t>(what.c_str()), where);
    const FileTypeInfo& type = info(tensor.type);
    const uint64_t row = static_cast<uint64_t>(tensor.shape[0]);
    if (row % type.block_elems != 0)
      fail(Status::bad_format, where, ": rows of ", row, " elements are no whole blocks of ",
           type.block_elems, " (", type.name, ")");
    std::reverse(tensor.shape.begin(), tensor.shape.end());

    Entry entry;
    entry.size = checked_mul<uint64_t>(elements / type.block_elems, type.block_bytes,
                                       where.c_str());
    entry.offset = in_.number<uint64_t>(what.c_str());
    if (entry.offset % alignment_ != 0)
      fail(Status::bad_format, where, ": its offset ", entry.offset, " is no multiple of ",
           alignment_);
    entry.tensor = out_.tensors.size();
    if (!out_.index.emplace(tensor.name, entry.tensor).second)
      fail(Status::bad_format, where, " is there twice");
    out_.tensors.push_back(std::move(tensor));
    return entry;
  }

  void read_tensors(uint64_t n) {
    count(n, 8 + 1 + 4 + 8 + 4 + 8, "tensors");
    std::vector<Entry> entries;
    entries.reserve(n);
    out_.tensors.reserve(n);
    for (uint64_t i = 0; i < n; ++i) entries.push_back(tensor_info());

    const uint64_t data_at = round_up(static_cast<uint64_t>(in_.at()), alignment_);
    if (data_at > bytes_.size()) {
      if (n == 0) return;  // a file of metadata alone need not be padded
      fail(Status::bad_format, name_, ": ends before the tensor data at byte ", data_at);
    }
    const std::span<const std::byte> data = bytes_.subspan(data_at);
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
    uint64_t at = 0;      // end of the tensor before
    uint64_t padded = 0;  // where the next one must begin
    for (size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      FileTensor& tensor = out_.tensors[entry.tensor];
      const std::string where = cat(name_, ": tensor \"", printable(tensor.name), "\"");
      checked_range(entry.offset, entry.size, data.size(), where.c_str());
      if (entry.offset < at)
        fail(Status::bad_format, where, ": its data overlaps that of \"",
             printable(out_.tensors[entries[i - 1].tensor].name), "\"");
      if (entry.offset != padded)
        fail(Status::bad_format, where, ": ", entry.offset - at, " bytes before its data (from ",
             at, ") belong to no tensor");
      tensor.data = data.subspan(entry.offset, entry.size);
      at = entry.offset + entry.size;
      padded = round_up(at, alignment_);
    }
    if (data.size() > padded)
      fail(Status::bad_format, name_, ": ", data.size() - padded,
           " bytes after the last tensor (from ", padded, ") belong to no tensor");
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  const std::shared_ptr<MappedFile>& file_;
  Checkpoint& out_;
  Reader in_;
  uint64_t alignment_ = 32;
  uint64_t elements_ = 0;
};

}  // namespace

void parse_gguf(std::span<const std::byte> bytes, const std::string& name,
                const std::shared_ptr<MappedFile>& file, Checkpoint& out) {
  Parser(bytes, name, file, out).run();
}

}  // namespace orlop
