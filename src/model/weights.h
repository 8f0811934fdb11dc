// File tensors -> the slots of a decoder: names, shapes, fusion, packing.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/arch.h"
#include "model/model.h"
#include "ops/device.h"
#include "ops/kernels.h"

namespace orlop {

// A packed matrix and its optional bias, on the device.
struct Linear {
  LinearDesc desc;
  void* packed = nullptr;
  float* bias = nullptr;  // [n], gated [2 n]
};

struct LayerWeights {
  float* attn_norm = nullptr;  // [dim]
  Linear qkv;                  // [(heads + 2 kv_heads) * head_dim, dim]
  float* q_norm = nullptr;     // [head_dim] or null
  float* k_norm = nullptr;
  Linear out;                  // [dim, heads * head_dim]
  float* ffn_norm = nullptr;   // [dim]
  Linear gate_up;              // gated: [ffn, dim] twice
  Linear down;                 // [dim, ffn]
};

struct Weights {
  Linear embed;            // [vocab, dim]
  std::vector<LayerWeights> layers;
  float* final_norm = nullptr;  // [dim]
  Linear head;             // [vocab, dim]; shares embed's memory when tied and there is one part

  std::vector<DeviceBuffer> storage;  // a part's; everything above lies in them
  size_t bytes = 0;
  WeightFacts facts;
};

// Checks that every tensor that the family needs is there with the right shape and that nothing is
// left over; then packs part after part on the part's threads, giving mapped file pages back as it goes.
// Error(bad_format | unsupported) names file, tensor and reason; Error(invalid_argument) options that
// the checkpoint contradicts; Error(cancelled) when asked.
Weights load_weights(const Checkpoint& checkpoint, const Config& config, const Arch& arch,
                     std::span<const Part> parts, const QuantOptions& quant, LoadProgress* progress);

}  // namespace orlop
