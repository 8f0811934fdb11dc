// A build that reads GGUF files alone.
#include "base/without.h"
#include "text/tokenizer.h"

namespace orlop {

TokenizerSpec tokenizer_spec_from_json(std::string_view, std::string_view) {
  fail_without("tokenizer.json", "folders");
}

}  // namespace orlop
