#include <fstream>

#include "../check.h"
#include "builders.h"
#include "format/folder.h"

using namespace orlop;
using namespace orlop::test;

static std::string tensor(const std::string& name, int begin = 0) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(begin + 4) + "]}";
}
static const std::string one = safetensors("{" + tensor("a") + "}", "abcd");

// A folder with config.json and one weight file.
struct Folder : TempDir {
  Folder() { write("config.json", "{}"); }
  std::shared_ptr<Checkpoint> open(LoadMode mode = LoadMode::mmap) const {
    return Checkpoint::open(path(), mode);
  }
};

TEST(reference_checkpoints) {
  const std::string root = std::string(TEST_DATA) + "/tiny/";
  const struct {
    const char* name;
    size_t tensors, files;
    std::vector<int64_t> embedding;
  } rows[] = {{"llama", 30, 1, {131, 96}},        {"llama-sharded", 21, 4, {128, 64}},
              {"llama3-rope", 20, 1, {160, 64}},  {"mistral-window", 21, 1, {128, 64}},
              {"qwen2", 26, 1, {151, 64}},        {"qwen3", 24, 1, {151, 64}}};
  for (const auto& row : rows)
    for (LoadMode mode : {LoadMode::mmap, LoadMode::read}) {
      const auto c = Checkpoint::open(root + row.name, mode);
      CHECK(c->kind == Checkpoint::Kind::hugging_face);
      CHECK(c->tensors.size() == row.tensors && c->index.size() == row.tensors);
      CHECK(c->files.size() == row.files);
      CHECK(c->config.at("vocab_size") == row.embedding[0]);
      CHECK(c->generation_config.at("eos_token_id") == 2);
      const FileTensor* t = c->find("model.embed_tokens.weight");
      CHECK(t && t->type == FileType::bf16 && t->shape == row.embedding);
      CHECK(t && t->data.size() == static_cast<size_t>(row.embedding[0] * row.embedding[1] * 2));
      size_t bytes = 0, size = 0;
      for (const FileTensor& f : c->tensors) bytes += f.data.size();
      for (const auto& f : c->files) size += f->bytes().size();
      CHECK(bytes < size && size - bytes < 4096 * row.files);
    }
}

TEST(what_the_path_may_be) {
  Folder f;
  CHECK_THROWS(invalid_argument, "empty", Checkpoint::open("", LoadMode::mmap));
  CHECK_THROWS(invalid_argument, "NUL", Checkpoint::open(std::string("a\0b", 3), LoadMode::mmap));
  CHECK_THROWS(not_found, "absent", Checkpoint::open(f.file("absent"), LoadMode::mmap));
  CHECK_THROWS(io, "device", Checkpoint::open("/dev/null", LoadMode::mmap));
  CHECK_THROWS(bad_format, "is empty", Checkpoint::open(f.write("e.gguf", ""), LoadMode::mmap));
  CHECK_THROWS(bad_format, "neither", Checkpoint::open(f.write("x", "hello"), LoadMode::read));
  CHECK_THROWS(invalid_argument, "give the folder",
               Checkpoint::open(f.write("model.safetensors", one), LoadMode::mmap));
}

TEST(files_of_a_folder) {
  TempDir bare;
  CHECK_THROWS(not_found, "config.json: is missing", Checkpoint::open(bare.path(), LoadMode::mmap));
  Folder f;
  CHECK_THROWS(not_found, "neither model.safetensors nor", f.open());
  f.write("pytorch_model.bin", "x");
  CHECK_THROWS(unsupported, "pytorch_model.bin", f.open());
  f.write("model.safetensors", one);
  auto c = f.open();
  CHECK(c->tensors.size() == 1 && c->find("a"));
  CHECK(c->generation_config.is_null() && c->tokenizer_json.empty());
  CHECK(c->tokenizer_config_json.empty() && c->chat_template.empty());

  f.write("generation_config.json", "{\"top_k\":3}");
  f.write("tokenizer.json", "the tokenizer");
  f.write("tokenizer_config.json", "{\"chat_template\":\"one\"}");
  c = f.open();
  CHECK(c->generation_config.at("top_k") == 3);
  CHECK(c->tokenizer_json == "the tokenizer" && c->chat_template == "one");
  f.write("chat_template.jinja", "two");
  CHECK(f.open()->chat_template == "two");

  f.write("generation_config.json", "[]");
  CHECK_THROWS(bad_format, "generation_config.json: no JSON object", f.open());
  f.write("generation_config.json", "{");
  CHECK_THROWS(bad_format, "generation_config.json: not valid JSON", f.open());
  f.write("generation_config.json", "{}");
  f.write("tokenizer_config.json", "{");
  CHECK_THROWS(bad_format, "tokenizer_config.json: not valid JSON", f.open());
  f.write("tokenizer_config.json", "{}");
  for (const char* bad : {"", "[]", "3", "{\"a\":1,\"a\":2}", "{\"a\":NaN}", "{} {}", "\xff{}"}) {
    f.write("config.json", bad);
    CHECK_THROWS(bad_format, "config.json", f.open());
  }
  std::string deep(100000, '[');
  f.write("config.json", "{\"a\":" + deep);
  CHECK_THROWS(bad_format, "nested deeper", f.open());
  std::filesystem::remove(f.file("config.json"));
  std::filesystem::create_directory(f.file("config.json"));
  CHECK_THROWS(io, "is a directory", f.open());
}

TEST(templates_in_tokenizer_config) {
  const auto get = [](const std::string& s) { return template_of_tokenizer_config(s, "t.json"); };
  CHECK(get("{}").empty() && get(R"({"chat_template":null})").empty());
  CHECK(get(R"({"chat_template":"x"})") == "x");
  CHECK(get(R"({"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})") == "d");
  CHECK(get(R"({"chat_template":[{"name":"tool_use","template":"t"}]})").empty());
  CHECK_THROWS(bad_format, "neither a string nor a list", get(R"({"chat_template":3})"));
  for (const char* bad : {"3", "{}", R"({"name":"default"})", R"({"name":1,"template":"x"})",
                          R"({"name":"default","template":[]})"})
    CHECK_THROWS(bad_format, "an entry of the list",
                 get(std::string(R"({"chat_template":[)") + bad + "]}"));
  CHECK_THROWS(bad_format, "t.json: no JSON object", get("[]"));
}

TEST(shards) {
  Folder f;
  const auto index = [&](const std::string& map) {
    f.write("model.safetensors.index.json", "{\"metadata\":{\"total_size\":1},\"weight_map\":" + map + "}");
  };
  f.write("x.safetensors", one);
  f.write("y.safetensors", safetensors("{" + tensor("b") + "," + tensor("c", 4) + "}", "efghijkl"));
  index(R"({"a":"x.safetensors","b":"y.safetensors","c":"y.safetensors"})");
  const auto c = f.open(LoadMode::read);
  CHECK(c->tensors.size() == 3 && c->files.size() == 2);
  CHECK(c->find("c")->data[0] == std::byte{'i'} && c->find("c")->file->path() == c->files[1]->path());

  index(R"({"a":"x.safetensors","b":"y.safetensors"})");
  CHECK_THROWS(bad_format, "y.safetensors: tensor \"c\" is not listed", f.open());
  index(R"({"a":"x.safetensors","b":"y.safetensors","c":"y.safetensors","d":"y.safetensors"})");
  CHECK_THROWS(bad_format, "y.safetensors: tensor \"d\"", f.open());
  index(R"({"a":"x.safetensors","b":"x.safetensors","c":"y.safetensors"})");
  CHECK_THROWS(bad_format, "tensor \"b\"", f.open());
  index(R"({"a":"x.safetensors","b":"z.safetensors"})");
  CHECK_THROWS(not_found, "z.safetensors: a shard that", f.open());
  // The same tensor in two shards.
  f.write("y.safetensors", safetensors("{" + tensor("a") + "," + tensor("c", 4) + "}", "efghijkl"));
  index(R"({"a":"x.safetensors","c":"y.safetensors"})");
  CHECK_THROWS(bad_format, "tensor \"a\" is listed in", f.open());

  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/x.safetensors",
                           "..\\\\x.safetensors", ".x.safetensors", ".safetensors", "x.bin", "",
                           "..", "x\\u0000.safetensors", "a\\nb.safetensors"}) {
    index(std::string("{\"a\":\"") + name + "\"}");
    CHECK_THROWS(bad_format, "is no plain name", f.open());
  }
  index("{\"a\":\"" + std::string(300, 'x') + ".safetensors\"}");
  CHECK_THROWS(bad_format, "is no plain name", f.open());
  index(R"({"a":3})");
  CHECK_THROWS(bad_format, "the shard of tensor \"a\" is no string", f.open());
  index("{}");
  CHECK_THROWS(bad_format, "is empty", f.open());
  index(R"({"a":"x.safetensors","a":"x.safetensors"})");
  CHECK_THROWS(bad_format, "duplicate key \"a\"", f.open());
  index("[]");
  CHECK_THROWS(bad_format, "no object \"weight_map\"", f.open());
  f.write("model.safetensors.index.json", "[]");
  CHECK_THROWS(bad_format, "no object \"weight_map\"", f.open());
}

TEST(a_reference_shard_truncated) {
  Folder f;
  const std::string from = std::string(TEST_DATA) + "/tiny/llama-sharded";
  for (const auto& entry : std::filesystem::directory_iterator(from))
    std::filesystem::copy_file(entry, f.file(entry.path().filename()),
                               std::filesystem::copy_options::overwrite_existing);
  CHECK(f.open()->tensors.size() == 21);
  const std::string shard = f.file("model-00002-of-00004.safetensors");
  for (uint64_t n = std::filesystem::file_size(shard); n-- > 0; n -= n > 700 ? n / 7 : 0) {
    std::filesystem::resize_file(shard, n);
    CHECK_THROWS(bad_format, "model-00002-of-00004.safetensors", f.open());
  }
}

int main(int argc, char** argv) { return test_main(argc, argv); }
