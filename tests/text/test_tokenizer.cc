#include <chrono>

#include "tokenizers.h"

using namespace orlop;
using namespace orlop::test;

namespace {

using Ids = std::vector<int32_t>;
constexpr EncodeOptions plain{false, false, {}};
constexpr EncodeOptions parsed{false, true, {}};
constexpr EncodeOptions full{true, true, {}};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void report(const std::string& name, const std::string& text, const char* what) {
  std::fprintf(stderr, "  %s: %s differs for %s\n", name.c_str(), what, Json(text).dump().c_str());
}

}  // namespace

TEST(every_golden_row) {
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    int rows = 0;
    for (const Json& row : golden(name)) {
      const std::string text = row["text"];
      const Ids ids = row["ids"];
      const bool same = t->encode(text, parsed) == ids &&
                        t->encode(text, full) == row["ids_with_special"].get<Ids>();
      const bool back = t->decode(ids, false) == row["decoded"].get<std::string>() &&
                        t->decode(ids, true) == row["decoded_skip_special"].get<std::string>();
      if (!same) report(name, text, "encoding");
      if (!back) report(name, text, "decoding");
      CHECK(same && back);
      ++rows;
    }
    CHECK(rows > 100);
    std::printf("%s: %d golden rows\n", name.c_str(), rows);
  }
}

TEST(speed) {
  std::string text;
  for (const char* path : {"/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/GPL-2",
                           "/usr/share/common-licenses/LGPL-2.1"}) {
    std::string one;
    if (read_file(path, one)) text += one;
  }
  if (text.empty()) return skip("speed: no English text in /usr/share/common-licenses");
  while (text.size() < 1000000) text += text;
  text.resize(1000000);
  for (const std::string name : tokenizer_names) {
    TokenizerSpec spec;
    auto start = std::chrono::steady_clock::now();
    if (!load_spec(name, spec)) continue;
    const double load = ms_since(start);
    start = std::chrono::steady_clock::now();
    const auto t = Tokenizer::create(std::move(spec));
    const double build = ms_since(start);
    start = std::chrono::steady_clock::now();
    const Ids ids = t->encode(text, plain);
    const double encode = ms_since(start);
    start = std::chrono::steady_clock::now();
    CHECK(t->decode(ids, false) == text);
    const double decode = ms_since(start);
    std::printf("%s: spec %.0f ms, build %.0f ms, 1 MB of English: encode %.0f ms, decode %.0f ms\n",
                name.c_str(), load, build, encode, decode);
  }
}

int main(int argc, char** argv) { return text_main(argc, argv); }
