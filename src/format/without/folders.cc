// A build that reads GGUF files alone.
#include "base/without.h"
#include "format/folder.h"
#include "format/quant.h"

namespace orlop {

void open_folder(const std::string& path, LoadMode, Checkpoint&) {
  fail_without((path + ": a checkpoint folder").c_str(), "folders");
}

// A GGUF file's tensors say for themselves how they are quantized.
std::unique_ptr<QuantScheme> QuantScheme::open(const Checkpoint&) { return nullptr; }
bool QuantScheme::is_idle(std::string_view) { return false; }

}  // namespace orlop
