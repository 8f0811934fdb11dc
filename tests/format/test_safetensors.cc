#include <cstring>
#include <random>

#include "../check.h"
#include "builders.h"
#include "format/safetensors.h"

using namespace orlop;
using namespace orlop::test;

static std::vector<FileTensor> parse(const std::string& file) {
  return parse_safetensors(Aligned(file).bytes(), "f.safetensors", nullptr);
}

static const char* two =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},)"
    R"("a":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}})";

TEST(good_file) {
  std::string header = two;
  while (header.size() % 8) header += ' ';
  const std::string file = safetensors(header, "0123456789abcdef");
  const Aligned bytes(file);
  const auto t = parse_safetensors(bytes.bytes(), "f", nullptr);
  CHECK(t.size() == 2);
  CHECK(t[0].name == "a" && t[0].type == FileType::f32);
  CHECK((t[0].shape == std::vector<int64_t>{3, 1}));
  CHECK(t[0].data.size() == 12 && std::memcmp(t[0].data.data(), "0123456789ab", 12) == 0);
  CHECK(t[0].data.data() == bytes.bytes().data() + 8 + header.size());  // in place
  CHECK(t[1].name == "b" && t[1].type == FileType::f16 && t[1].shape.size() == 1);
  CHECK(t[1].data.size() == 4 && std::memcmp(t[1].data.data(), "cdef", 4) == 0);
}

TEST(scalars_and_empty_files) {
  const auto t = parse(safetensors(
      R"({"s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})", "ab"));
  CHECK(t.size() == 1 && t[0].shape.empty() && t[0].data.size() == 2);
  CHECK(parse(safetensors("{}", "")).empty());
}

TEST(integers_and_eight_bit_floats) {
  const struct {
    const char* dtype;
    FileType type;
    size_t bytes;
  } rows[] = {{"I8", FileType::int8, 1},   {"U8", FileType::uint8, 1}, {"I32", FileType::int32, 4},
              {"I64", FileType::int64, 8}, {"F8_E4M3", FileType::f8, 1}};
  for (const auto& row : rows) {
    const std::string n = std::to_string(3 * row.bytes);
    std::string header = "{\"t\":{\"dtype\":\"" + std::string(row.dtype) +
                         "\",\"shape\":[3],\"data_offsets\":[0," + n + "]}}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const Aligned bytes(safetensors(header, std::string(3 * row.bytes, 'x')));
    const auto t = parse_safetensors(bytes.bytes(), "f", nullptr);
    CHECK(t.size() == 1 && t[0].type == row.type && t[0].data.size() == 3 * row.bytes);
    CHECK(info(t[0].type).block_elems == 1 && info(t[0].type).block_bytes == row.bytes);
  }
}

TEST(misaligned_data_is_copied_to_aligned_memory) {
  for (int shift = 0; shift < 8; ++shift) {
    std::string header = two + std::string(static_cast<size_t>(shift), ' ');
    const auto t = parse(safetensors(header, "0123456789abcdef"));
    CHECK(t.size() == 2);
    CHECK(reinterpret_cast<uintptr_t>(t[0].data.data()) % 4 == 0);
    CHECK(reinterpret_cast<uintptr_t>(t[1].data.data()) % 2 == 0);
    // Copies own their bytes (those that were read in place died with the buffer).
    if (t[0].file) CHECK(std::memcmp(t[0].data.data(), "0123456789ab", 12) == 0);
    CHECK(((std::strlen(two) + static_cast<size_t>(shift)) % 4 == 0) == (t[0].file == nullptr));
  }
}

TEST(lies) {
  const auto one = [](const std::string& entry) { return safetensors("{\"t\":" + entry + "}", "abcd"); };
  const struct {
    Status status;
    const char* words;
    std::string file;
  } rows[] = {
      {Status::bad_format, "too few", ""},
      {Status::bad_format, "too few", std::string(7, '\0')},
      {Status::bad_format, "header of 0 bytes", raw<uint64_t>(0)},
      {Status::bad_format, "header of 18446744073709551615 bytes", raw<uint64_t>(UINT64_MAX) + "{}"},
      {Status::bad_format, "header of 104857601 bytes", raw<uint64_t>((100 << 20) + 1) + "{}"},
      {Status::bad_format, "lie outside", raw<uint64_t>(3) + "{}"},
      {Status::bad_format, "does not start", safetensors(" {}", "")},
      {Status::bad_format, "not valid JSON", safetensors("{\"a\"", "")},
      {Status::bad_format, "not valid JSON", safetensors("{}x", "")},
      {Status::bad_format, "nested deeper", safetensors("{\"a\":[[[[[[[[[[]]]]]]]]]]}", "")},
      {Status::bad_format, "duplicate key \"t\"",
       safetensors(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd")},
      {Status::bad_format, "no JSON object", one("3")},
      {Status::bad_format, "\"dtype\" is missing", one(R"({"shape":[1],"data_offsets":[0,4]})")},
      {Status::bad_format, "\"shape\" is missing", one(R"({"dtype":"F32","data_offsets":[0,4]})")},
      {Status::bad_format, "\"data_offsets\" is missing", one(R"({"dtype":"F32","shape":[1]})")},
      {Status::bad_format, "unknown key \"x\"",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})")},
      {Status::unsupported, "tensor \"t\": dtype U32 is not supported",
       one(R"({"dtype":"U32","shape":[1],"data_offsets":[0,4]})")},
      {Status::unsupported, "dtype F8_E5M2 is not supported",
       one(R"({"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]})")},
      {Status::bad_format, "unknown dtype \"F33\"",
       one(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})")},
      {Status::bad_format, "dtype is no string",
       one(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})")},
      {Status::bad_format, "shape is no array",
       one(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})")},
      {Status::bad_format, "9 dimensions",
       one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})")},
      {Status::bad_format, "is 0", one(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})")},
      {Status::bad_format, "a count is needed",
       one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})")},
      {Status::bad_format, "a count is needed",
       one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})")},
      {Status::bad_format, "a count is needed",
       one(R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})")},
      {Status::bad_format, "overflows",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})")},
      {Status::bad_format, "overflows",
       one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})")},
      {Status::bad_format, "no pair", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})")},
      {Status::bad_format, "no pair", one(R"({"dtype":"F32","shape":[1],"data_offsets":4})")},
      {Status::bad_format, "before they begin",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})")},
      {Status::bad_format, "span 3 bytes, its shape and dtype need 4",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,3]})")},
      {Status::bad_format, "lie outside",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})")},
      {Status::bad_format, "lie outside",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]})")},
      {Status::bad_format, "before its data",
       one(R"({"dtype":"F16","shape":[1],"data_offsets":[2,4]})")},
      {Status::bad_format, "after the last tensor",
       one(R"({"dtype":"F16","shape":[1],"data_offsets":[0,2]})")},
      {Status::bad_format, "overlaps",
       safetensors(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd")},
      {Status::bad_format, "overlaps",
       safetensors(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("u":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}})", "abcdef")},
      {Status::bad_format, "__metadata__ is no JSON object",
       safetensors(R"({"__metadata__":[]})", "")},
      {Status::bad_format, "__metadata__ \"a\" is no string",
       safetensors(R"({"__metadata__":{"a":1}})", "")},
      {Status::bad_format, "its name has 0 bytes",
       safetensors(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd")},
      {Status::bad_format, "its name has 2000 bytes",
       safetensors("{\"" + std::string(2000, 'n') +
                   R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd")},
  };
  for (const auto& row : rows) {
    CHECK(throws(row.status, row.words, [&] { parse(row.file); }));
    CHECK(row.file.empty() || throws(row.status, "f.safetensors", [&] { parse(row.file); }));
  }
}

// A typed error or success, never anything else.
static bool orderly(const std::string& file) {
  try {
    parse(file);
    return true;
  } catch (const Error& e) {
    return e.status() == Status::bad_format || e.status() == Status::unsupported;
  }
}

TEST(truncated_at_every_byte) {
  const std::string file = safetensors(two, "0123456789abcdef");
  CHECK(parse(file).size() == 2);
  for (size_t n = 0; n < file.size(); ++n)
    CHECK(throws(Status::bad_format, "f.safetensors", [&] { parse(file.substr(0, n)); }));
  CHECK_THROWS(bad_format, "after the last tensor", parse(file + "x"));
}

TEST(every_byte_changed) {
  const std::string file = safetensors(two, "0123456789abcdef");
  int n = 0;
  for (size_t i = 0; i < 8 + std::strlen(two); ++i)
    for (int c = 0; c < 256; ++c) {
      std::string bad = file;
      bad[i] = static_cast<char>(c);
      n += orderly(bad);
    }
  CHECK(n == static_cast<int>(8 + std::strlen(two)) * 256);
}

TEST(names_are_printable) {
  CHECK(printable("a\nb\x7f") == "a?b?");
  CHECK(printable(std::string(300, 'x')) == std::string(120, 'x') + "...");
  std::string s(119, 'x');
  CHECK(printable(s + "\xc3\xa4" + s) == s + "...");  // not cut inside a code point
}

int main(int argc, char** argv) { return test_main(argc, argv); }
