// The JSON files of a checkpoint folder from anywhere: config.json and generation_config.json (the
// same text for both), the index of shards, and the template inside tokenizer_config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "format/folder.h"
#include "fuzz.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  orlop::fuzz::orderly([&] {
    orlop::Checkpoint checkpoint;
    checkpoint.kind = orlop::Checkpoint::Kind::hugging_face;
    checkpoint.path = "fuzz";
    checkpoint.config = orlop::parse_json(text, "fuzz", {.max_bytes = 1 << 20});
    if (!checkpoint.config.is_object()) return;  // the folder's reader refuses it
    orlop::fuzz::orderly([&] { orlop::fuzz::check_config(checkpoint); });
    checkpoint.generation_config = checkpoint.config;
    orlop::fuzz::check_config(checkpoint);
  });
  orlop::fuzz::orderly([&] {
    for (const auto& [shard, names] : orlop::parse_shard_index(text, "fuzz")) {
      orlop::fuzz::require(shard.find('/') == shard.npos && shard[0] != '.');
      orlop::fuzz::require(!names.empty());
    }
  });
  orlop::fuzz::orderly([&] { orlop::template_of_tokenizer_config(text, "fuzz"); });
  return 0;
}
