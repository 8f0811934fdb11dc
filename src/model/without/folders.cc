// A build that reads GGUF files alone.
#include "base/without.h"
#include "model/config_read.h"

namespace orlop {

Config read_folder_config(const Checkpoint&) { fail_without("config.json", "folders"); }
GenerationDefaults read_folder_generation_defaults(const Checkpoint&) {
  fail_without("generation_config.json", "folders");
}

}  // namespace orlop
