// A loaded decoder: weights on a device, KV pools, workspace, forward pass.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/quant_options.h"
#include "ops/device.h"

namespace orlop {

struct ModelLimits {      // fixed at load; the workspace is sized by them
  int32_t max_rows = 512;      // tokens in one step
  int32_t max_seqs = 64;       // sequences in one step
  int32_t max_context = 0;     // positions of one sequence
  int32_t max_logit_rows = 64; // rows of logits held at once
  int32_t page_tokens = 16;
  KvType kv_type = KvType::bf16;
  Compute compute = Compute::bf16;
  QuantOptions quant;
};

// What the matrices of a loaded model hold.
struct WeightFacts {
  std::string quant;  // how they were quantized, for people; "none": as floats
  std::map<std::string, uint64_t> elements;  // of each type
};

struct LoadProgress {
  std::atomic<uint64_t> bytes_done{0}, bytes_total{0};
  std::atomic<bool> cancel{false};  // set by the caller: load ends with Error(cancelled)
};

// Layers [begin, end) of a model, and where they run. A model has one part, or several that follow one another:
// the first looks the tokens up as well; the last has the last norm, the head and the sampling, and may be without
// layers. Hidden states go from part to part through the host, once a step.
struct Part {
  Exec exec;  // outlives the model
  int32_t begin = 0, end = 0;
  Compute compute = Compute::bf16;
};

// One kind of cache: the layers that share page tables.
struct CacheGroup {
  int32_t window = 0;      // 0: every position is kept
  std::vector<int32_t> layers;
  size_t page_bytes = 0;   // all its layers, keys and values
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Config& config() const = 0;
  virtual const ModelLimits& limits() const = 0;
  virtual const std::vector<CacheGroup>& groups() const = 0;
  virtual size_t weight_bytes() const = 0;
  virtual std::vector<size_t> part_weight_bytes() const { return {weight_bytes()}; }  // of them, each part's
  virtual WeightFacts weight_facts() const { return {}; }
  virtual size_t workspace_bytes() const = 0;

  // Allocates the KV pools: pages[g] pages for group g, and max_seqs seats. Called once, after load.
  virtual void allocate_cache(const std::vector<int64_t>& pages) = 0;
  // Bytes that one seat takes besides pages: what a running sequence keeps outside them (the tails
  // of a quantized cache; 0 otherwise).
  virtual size_t seat_bytes() const = 0;
  // Overwrites a page with NaN patterns (tests: nothing may read what was not written).
  virtual void poison_page(int group, int32_t page) = 0;

  // Pages on the move, in order with forward(): a page within the pool; a page to host memory and
  // back (groups()[g].page_bytes each). Host memory may be read after the next sync().
  virtual void copy_page(int group, int32_t from, int32_t to) = 0;
  virtual void copy_seat(int32_t from, int32_t to) = 0;
  virtual void read_page(int group, int32_t page, void* host) = 0;
  virtual void write_page(int group, int32_t page, const void* host) = 0;
  virtual void sync() = 0;

  // Uploads the batch, once; runs all layers over it and keeps the final hidden rows of
  // batch.logit_rows.
  virtual void forward(const Batch& batch) = 0;
  // Logits of kept rows [begin, begin + count), count <= max_logit_rows; memory of the last part's
  // device [count, vocab], valid until the next call.
  virtual const float* logits(int32_t begin, int32_t count) = 0;
  // Uploads the masks that batch.samples name (SampleRow::allowed). Between forward() and the first
  // sample(): the host memory they point to is read here, no earlier.
  virtual void take_masks() {}
  // The final hidden states, after the last norm, of kept rows [begin, begin + count) to host memory
  // [count, dim].
  virtual void hidden(int32_t begin, int32_t count, float* out) = 0;
  // Samples the rows of the last logits() call with their entries of batch.samples. Host arrays out, filled
  // once wait() has returned for the ticket: results [count]; top [count, top_stride]. What is drawn stays on
  // the device as well, until rows of the next batch are sampled: see Batch::tokens.
  virtual uint64_t sample_later(SampleResult* results, TokenLogprob* top, int32_t top_stride) = 0;
  // A ticket for all that was called so far.
  virtual uint64_t mark() { return 0; }
  // Returns when all up to the ticket is done; throws what failed of it.
  virtual void wait(uint64_t /*ticket*/) {}
  // forward(), logits() and sample_later() return before they are done.
  virtual bool asynchronous() const { return false; }

  void sample(SampleResult* results, TokenLogprob* top, int32_t top_stride) {
    wait(sample_later(results, top, top_stride));
  }
};

// All of the model in one place, computed as the limits say. exec must outlive the model.
std::unique_ptr<Model> load_model(std::shared_ptr<Checkpoint> checkpoint, const Exec& exec,
                                  const ModelLimits& limits, LoadProgress* progress);
// In parts, computed as each says. A model of several parts is not asynchronous.
std::unique_ptr<Model> load_model(std::shared_ptr<Checkpoint> checkpoint, std::span<const Part> parts,
                                  const ModelLimits& limits, LoadProgress* progress);

}  // namespace orlop
