// What one part of a model runs on: its activations, its copy of a step's arrays.
#pragma once
#include <cstdint>

#include "model/batch.h"
#include "model/forward.h"
#include "model/staging.h"

namespace orlop {

// Bytes that a step's arrays take at most, with `sampling` bytes of token counts, biases and the like.
size_t batch_bytes(const ModelLimits& limits, size_t groups, size_t sampling);

struct Side {
  // last: with room for logits and sampling, and for `sampling` bytes of its arrays.
  Side(const Part& part, bool last, const Config& config, const ModelLimits& limits,
       const KvCache& cache, const Weights& weights, const RopeFrequencies& rope, size_t sampling);

  size_t bytes() const { return storage.bytes() + 2 * staging.bytes(); }
  // Into the staging: the step's arrays but what is sampled; and the page tables, which grow from step to step
  // and come last. Steps of equal batches then have equal addresses, and a backend may run them as it ran the
  // one before.
  void add_rows(const Batch& from, size_t groups);
  void add_page_tables(const Batch& from, size_t groups);

  Exec exec;
  int32_t begin, end;  // layers
  Staging staging;
  DeviceBuffer storage;  // work lies in it
  Workspace work;
  DeviceBuffer inv_freq;  // [rope_half]
  DeviceBatch batch;
};

}  // namespace orlop
