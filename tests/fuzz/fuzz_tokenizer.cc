// tokenizer.json from anywhere: a typed error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer =
        orlop::Tokenizer::create(orlop::tokenizer_spec_from_json(json, std::string_view()));
    const std::string_view text = "Hello  w\xc3\xb6rld! 123 <s> \xf0\x9f\x98\x80\r\n e\xcc\x81 \t";
    const orlop::ByteRange untrusted[] = {{3, 9}, {20, 21}};
    for (const bool parse : {false, true}) {
      auto ids = tokenizer->encode(text, {true, parse, untrusted});
      for (int32_t id = -1; id <= tokenizer->vocab_size() && id < 64; ++id) ids.push_back(id);
      tokenizer->decode(ids, parse);
    }
  } catch (const orlop::Error&) {
  }
  return 0;
}
