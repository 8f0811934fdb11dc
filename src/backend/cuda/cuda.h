// The CUDA backend as the rest of the core sees it.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace orlop::cuda {

// device: "cuda" or "cuda:N". Error(unsupported) where plugin, driver or GPU are missing, saying which. fast: equal
// batches have equal bits, nothing more.
std::unique_ptr<Backend> make_backend(const std::string& device, int threads, bool fast);
// Whether make_backend("cuda") has a chance: plugin and driver are there and see a GPU.
bool available();

}  // namespace orlop::cuda
