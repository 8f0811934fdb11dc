#include <cstring>
#include <map>
#include <random>

#include "../check.h"
#include "builders.h"
#include "format/gguf.h"

using namespace orlop;
using namespace orlop::test;

static Checkpoint parse(const std::string& file) {
  Checkpoint c;
  parse_gguf(as_span(file), "f.gguf", nullptr, c);
  return c;
}
static Checkpoint parse(const Gguf& g) { return parse(g.file()); }

// Two tensors after some metadata of every kind.
static Gguf sample() {
  Gguf g;
  g.str("general.architecture", "llama");
  g.key("u8", 0, raw<uint8_t>(200)).key("i8", 1, raw<int8_t>(-3));
  g.key("u16", 2, raw<uint16_t>(60000)).key("i16", 3, raw<int16_t>(-300));
  g.u32("u32", 4000000000u).key("i32", 5, raw<int32_t>(-7)).f32("f32", 0.5f);
  g.key("yes", 7, raw<uint8_t>(1)).key("no", 7, raw<uint8_t>(0));
  g.key("u64", 10, raw<uint64_t>(UINT64_MAX)).key("i64", 11, raw<int64_t>(INT64_MIN));
  g.key("f64", 12, raw<double>(1e300));
  g.strings("words", {"a", "", "Ġt"});
  g.numbers<int32_t>("types", 5, {1, -2, 3}).numbers<float>("scores", 6, {0.5f, -1.0f});
  g.numbers<uint8_t>("flags", 7, {1, 0}).numbers<uint64_t>("none", 10, {});
  g.tensor("x", {2, 3}, 0, std::string(24, 'x'));
  g.tensor("q", {64, 2}, 3, std::string(4 * 20, 'q'));
  return g;
}

TEST(good_file) {
  for (uint32_t version : {2u, 3u}) {
    Gguf g = sample();
    g.version = version;
    const std::string file = g.file();
    const Checkpoint c = parse(file);
    CHECK(c.gguf_version == version);
    CHECK(c.meta.size() == 18);
    CHECK(std::get<uint64_t>(c.meta.at("u8")) == 200);
    CHECK(std::get<int64_t>(c.meta.at("i8")) == -3);
    CHECK(std::get<uint64_t>(c.meta.at("u16")) == 60000);
    CHECK(std::get<int64_t>(c.meta.at("i16")) == -300);
    CHECK(std::get<uint64_t>(c.meta.at("u32")) == 4000000000u);
    CHECK(std::get<int64_t>(c.meta.at("i32")) == -7);
    CHECK(std::get<double>(c.meta.at("f32")) == 0.5);
    CHECK(std::get<bool>(c.meta.at("yes")) && !std::get<bool>(c.meta.at("no")));
    CHECK(std::get<uint64_t>(c.meta.at("u64")) == UINT64_MAX);
    CHECK(std::get<int64_t>(c.meta.at("i64")) == INT64_MIN);
    CHECK(std::get<double>(c.meta.at("f64")) == 1e300);
    CHECK(std::get<std::string>(c.meta.at("general.architecture")) == "llama");
    const auto array = [&](const char* key) { return std::get<MetaArray>(c.meta.at(key)); };
    CHECK((std::get<std::vector<std::string>>(array("words")) ==
           std::vector<std::string>{"a", "", "Ġt"}));
    CHECK((std::get<std::vector<int64_t>>(array("types")) == std::vector<int64_t>{1, -2, 3}));
    CHECK((std::get<std::vector<double>>(array("scores")) == std::vector<double>{0.5, -1.0}));
    CHECK((std::get<std::vector<int64_t>>(array("flags")) == std::vector<int64_t>{1, 0}));
    CHECK(std::get<std::vector<int64_t>>(array("none")).empty());

    CHECK(c.tensors.size() == 2 && c.index.size() == 2);
    const FileTensor* x = c.find("x");
    const FileTensor* q = c.find("q");
    CHECK(x && q && !c.find("y"));
    CHECK((x->shape == std::vector<int64_t>{3, 2}) && x->type == FileType::f32);
    CHECK((q->shape == std::vector<int64_t>{2, 64}) && q->type == FileType::q4_1);
    CHECK(x->data.size() == 24 && x->data[23] == std::byte{'x'});
    CHECK(q->data.size() == 80 && q->data[0] == std::byte{'q'} && q->data[79] == std::byte{'q'});
  }
}

TEST(every_type) {
  const std::map<FileType, uint32_t> ids = {
      {FileType::f32, 0},   {FileType::f16, 1},   {FileType::q4_0, 2},  {FileType::q4_1, 3},
      {FileType::q5_0, 6},  {FileType::q5_1, 7},  {FileType::q8_0, 8},  {FileType::q2_k, 10},
      {FileType::q3_k, 11}, {FileType::q4_k, 12}, {FileType::q5_k, 13}, {FileType::q6_k, 14},
      {FileType::iq4_nl, 20}, {FileType::bf16, 30}};
  CHECK(ids.size() == ggml_type_count);
  for (const auto& [type, id] : ids) {
    const uint64_t bytes = 512 / info(type).block_elems * info(type).block_bytes;
    Gguf g;
    g.tensor("t", {256, 2}, id, std::string(bytes, 'x'));
    const Checkpoint c = parse(g);
    CHECK(c.tensors[0].type == type && c.tensors[0].data.size() == bytes);
  }
  for (uint32_t id : {9u, 15u, 16u, 17u, 18u, 19u, 21u, 22u, 23u, 24u, 27u, 28u, 29u, 34u, 39u})
    CHECK_THROWS(unsupported, "tensor \"t\": type",
                 parse(Gguf().tensor("t", {256}, id, std::string(512, 'x'))));
  CHECK_THROWS(unsupported, "type IQ4_XS", parse(Gguf().tensor("t", {256}, 23, "")));
  CHECK_THROWS(unsupported, "removed", parse(Gguf().tensor("t", {256}, 4, "")));
  for (uint32_t id : {40u, 255u, 0xffffffffu})
    CHECK_THROWS(bad_format, "unknown type number", parse(Gguf().tensor("t", {256}, id, "")));
}

TEST(alignment) {
  for (uint32_t a : {8u, 16u, 64u, 4096u}) {
    Gguf g;
    g.alignment = a;
    g.u32("general.alignment", a).tensor("x", {1}, 0, "abcd").tensor("y", {1}, 0, "efgh");
    const std::string file = g.file();  // the tensors look into it
    const Checkpoint c = parse(file);
    CHECK(std::memcmp(c.find("y")->data.data(), "efgh", 4) == 0);
  }
  for (uint32_t a : {0u, 1u, 4u, 24u, 33u, 1u << 21, 1u << 31})
    CHECK_THROWS(bad_format, "general.alignment", parse(Gguf().u32("general.alignment", a)));
  CHECK_THROWS(bad_format, "general.alignment", parse(Gguf().str("general.alignment", "32")));
  CHECK_THROWS(bad_format, "general.alignment",
               parse(Gguf().key("general.alignment", 11, raw<int64_t>(-32))));
}

TEST(header_lies) {
  CHECK_THROWS(bad_format, "magic", parse(std::string()));
  CHECK_THROWS(bad_format, "magic", parse(std::string("GGML") + raw<uint32_t>(3)));
  CHECK_THROWS(bad_format, "ends inside the version", parse(std::string("GGUF")));
  const auto version = [](uint32_t v) {
    Gguf g;
    g.version = v;
    return g;
  };
  CHECK_THROWS(unsupported, "version 1", parse(version(1)));
  CHECK_THROWS(unsupported, "version 4", parse(version(4)));
  CHECK_THROWS(unsupported, "version 0", parse(version(0)));
  CHECK_THROWS(unsupported, "big-endian", parse(version(0x03000000)));
  for (int64_t n : {int64_t{5}, int64_t{1} << 40, INT64_MAX}) {
    Gguf g;
    g.key_count = n;
    CHECK_THROWS(bad_format, "metadata entries", parse(g));
    Gguf h;
    h.tensor_count = n;
    CHECK_THROWS(bad_format, "tensors", parse(h));
  }
}

TEST(metadata_lies) {
  CHECK_THROWS(bad_format, "there twice", parse(Gguf().u32("a", 1).u32("a", 1)));
  CHECK_THROWS(bad_format, "is empty", parse(Gguf().u32("", 1)));
  CHECK_THROWS(bad_format, "printable ASCII", parse(Gguf().u32("a\n", 1)));
  CHECK_THROWS(bad_format, "printable ASCII", parse(Gguf().u32("\xff\xfe", 1)));
  CHECK_THROWS(bad_format, "at most 65535", parse(Gguf().u32(std::string(70000, 'k'), 1)));
  CHECK_THROWS(bad_format, "\"a\": unknown value type number 13", parse(Gguf().key("a", 13, "12345678")));
  CHECK_THROWS(bad_format, "truth value is 2", parse(Gguf().key("a", 7, raw<uint8_t>(2))));
  CHECK_THROWS(bad_format, "truth value is 9", parse(Gguf().numbers<uint8_t>("a", 7, {0, 9})));
  const auto array = [](uint32_t type, uint64_t n, const std::string& rest) {
    return Gguf().key("a", 9, raw(type) + raw(n) + rest);
  };
  CHECK_THROWS(unsupported, "arrays of arrays", parse(array(9, 1, raw<uint32_t>(0) + raw<uint64_t>(0))));
  CHECK_THROWS(bad_format, "unknown value type number 77", parse(array(77, 1, "x")));
  for (uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 10u, 11u, 12u}) {
    CHECK_THROWS(bad_format, "\"a\" claims", parse(array(type, UINT64_MAX, "12345678")));
    CHECK_THROWS(bad_format, "\"a\" claims", parse(array(type, 100, "12345678")));
  }
  CHECK_THROWS(bad_format, "at most 16777216 an array",
               parse(array(0, (1 << 24) + 1, std::string((1 << 24) + 1, 'x'))));
  CHECK_THROWS(bad_format, "out of range", parse(Gguf().numbers<uint64_t>("a", 10, {UINT64_MAX})));
  // Strings that claim more than there is.
  CHECK_THROWS(bad_format, "\"a\"", parse(Gguf().key("a", 8, raw<uint64_t>(UINT64_MAX) + "abc")));
  CHECK_THROWS(bad_format, "\"a\"", parse(Gguf().key("a", 8, raw<uint64_t>(40) + "abc")));
  CHECK_THROWS(bad_format, "\"a\"", parse(array(8, 2, Gguf::text("x") + raw<uint64_t>(1000) + "abc")));
  CHECK_THROWS(bad_format, "a metadata key", parse("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) +
               raw<uint64_t>(1) + raw<uint64_t>(60) + std::string(10, 'k')));
}

TEST(tensor_lies) {
  const std::string four = "abcd";
  CHECK_THROWS(bad_format, "there twice", parse(Gguf().tensor("t", {1}, 0, four).tensor("t", {1}, 0, four)));
  CHECK_THROWS(bad_format, "is empty", parse(Gguf().tensor("", {1}, 0, four)));
  CHECK_THROWS(bad_format, "printable ASCII", parse(Gguf().tensor("t\t", {1}, 0, four)));
  CHECK_THROWS(bad_format, "at most 255", parse(Gguf().tensor(std::string(300, 't'), {1}, 0, four)));
  CHECK_THROWS(bad_format, "tensor \"t\": 5 dimensions",
               parse(Gguf().tensor("t", {1, 1, 1, 1, 1}, 0, four)));
  Gguf flat;
  flat.tensor("t", {}, 0, std::string(64, 'x'));
  CHECK_THROWS(bad_format, "tensor \"t\": 0 dimensions", parse(flat));
  CHECK_THROWS(bad_format, "dimension 1 is 0", parse(Gguf().tensor("t", {1, 0}, 0, four)));
  CHECK_THROWS(bad_format, "overflows", parse(Gguf().tensor("t", {1ull << 40, 1ull << 40}, 0, four)));
  CHECK_THROWS(bad_format, "out of range", parse(Gguf().tensor("t", {1ull << 63}, 0, four)));
  CHECK_THROWS(bad_format, "overflows", parse(Gguf().tensor("t", {1ull << 62}, 0, four)));
  CHECK_THROWS(bad_format, "whole blocks of 32", parse(Gguf().tensor("t", {33, 32}, 3, four)));
  CHECK_THROWS(bad_format, "whole blocks of 256", parse(Gguf().tensor("t", {128, 2}, 12, four)));
  CHECK_THROWS(bad_format, "lie outside", parse(Gguf().tensor("t", {1000}, 0, four)));
  CHECK_THROWS(bad_format, "lie outside", parse(Gguf().tensor_raw("t", {1}, 0, UINT64_MAX - 31)));
  CHECK_THROWS(bad_format, "no multiple of 32", parse(Gguf().tensor_raw("t", {1}, 0, 4)));
  Gguf same;
  same.tensor("t", {1}, 0, four).tensor_raw("u", {1}, 0, 0);
  CHECK_THROWS(bad_format, "overlaps that of", parse(same));
  Gguf part;
  part.tensor("t", {16}, 0, std::string(64, 'x')).tensor_raw("u", {8}, 0, 32);
  CHECK_THROWS(bad_format, "overlaps that of", parse(part));
  Gguf gap;
  gap.data = std::string(32, 'x');
  gap.tensor("t", {1}, 0, four);
  CHECK_THROWS(bad_format, "32 bytes before its data", parse(gap));
  CHECK_THROWS(bad_format, "bytes after the last tensor",
               parse(Gguf().tensor("t", {1}, 0, four).file() + "x"));
}

static bool orderly(const std::string& file) {
  try {
    parse(file);
    return true;
  } catch (const Error& e) {
    return e.status() == Status::bad_format || e.status() == Status::unsupported;
  }
}

TEST(truncated_at_every_byte) {
  const std::string file = sample().file();
  size_t end = file.size();
  while (file[end - 1] == '\0') --end;  // the last padding may be missing
  for (size_t n = 0; n < end; ++n)
    CHECK(throws(Status::bad_format, "f.gguf", [&] { parse(file.substr(0, n)); }));
  for (size_t n = end; n <= file.size(); ++n) CHECK(parse(file.substr(0, n)).tensors.size() == 2);
}

TEST(every_byte_changed) {
  const std::string file = sample().file();
  const size_t head = sample().head().size();
  int bad = 0;
  for (size_t i = 0; i < head; ++i)
    for (int c = 0; c < 256; ++c) {
      std::string f = file;
      f[i] = static_cast<char>(c);
      bad += !orderly(f);
    }
  CHECK(bad == 0);
}

// The real file: random places to end at, read from a copy on disk, in both modes.
TEST(smollm2) {
  const std::string path = std::string(TEST_CACHE) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped 1: SmolLM2 GGUF is not in .cache\n");
    return;
  }
  const auto c = Checkpoint::open(path, LoadMode::mmap);
  CHECK(c->kind == Checkpoint::Kind::gguf && c->gguf_version == 3);
  CHECK(c->tensors.size() == 272 && c->meta.size() == 33 && c->files.size() == 1);
  std::map<FileType, int> types;
  for (const FileTensor& t : c->tensors) ++types[t.type];
  CHECK(types.size() == 3 && types[FileType::q4_1] == 210 && types[FileType::f32] == 61 &&
        types[FileType::q8_0] == 1);
  const auto at = [&](const char* name) {
    return c->find(name)->data.data() - c->files[0]->bytes().data();
  };
  // Places and sizes as gguf-py reads them.
  CHECK(at("token_embd.weight") == 1785664);
  CHECK(c->find("token_embd.weight")->data.size() == 30081024);
  CHECK((c->find("token_embd.weight")->shape == std::vector<int64_t>{49152, 576}));
  CHECK(at("blk.0.attn_norm.weight") == 31866688);
  CHECK(at("blk.19.attn_norm.weight") == 56247616);
  CHECK(at("output_norm.weight") == 98360128);
  const auto& tokens = std::get<std::vector<std::string>>(
      std::get<MetaArray>(c->meta.at("tokenizer.ggml.tokens")));
  CHECK(tokens.size() == 49152 && tokens[100] == "t" && tokens[102] == "v");
  const auto& merges = std::get<std::vector<std::string>>(
      std::get<MetaArray>(c->meta.at("tokenizer.ggml.merges")));
  CHECK(merges.size() == 48900 && merges.back() == "ect able");
  CHECK(c->chat_template.size() == 368);

  TempDir dir;
  const std::string cut = dir.file("cut.gguf");
  std::filesystem::copy_file(path, cut);
  std::mt19937_64 random(1);
  std::vector<uint64_t> ends;
  const uint64_t size = std::filesystem::file_size(path);
  // Half anywhere, half in the metadata; longest first, since a file can only be cut shorter.
  for (int i = 0; i < (is_short() ? 40 : 200); ++i) ends.push_back(random() % (i % 2 ? size : uint64_t{1785664}));
  std::sort(ends.rbegin(), ends.rend());
  int typed = 0;
  for (uint64_t end : ends) {
    std::filesystem::resize_file(cut, end);
    try {
      Checkpoint::open(cut, end < 2000000 ? LoadMode::read : LoadMode::mmap);
    } catch (const Error& e) {
      typed += e.status() == Status::bad_format &&
               e.text().find("cut.gguf") != std::string::npos;
    }
  }
  CHECK(typed == static_cast<int>(ends.size()));
}

int main(int argc, char** argv) { return test_main(argc, argv); }
