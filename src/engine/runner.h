// Executes a plan: packs one ragged batch, runs the model, samples. All its memory is taken at
// construction.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan.h"
#include "engine/sample.h"
#include "model/model.h"

namespace orlop {

class Runner {
 public:
  // Receives what the model says about one token: the drawn one (position = number of tokens so
  // far) or a given prompt token. `top` has the width that the request asked for.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void drawn(Sample&, const SampleResult&, const TokenLogprob* top, int64_t now_ns) = 0;
    virtual void scored(Sample&, int32_t position, const SampleResult&,
                        const TokenLogprob* top) = 0;
    // A prompt position's final hidden states [dim].
    virtual void pooled(Sample&, int32_t position, std::span<const float> hidden) = 0;
    // The forward pass is done: now the masks of guided() must be there.
    virtual void before_sampling() = 0;
  };

  explicit Runner(Model& model);
  // Reads all that a step needs of its sequences, each a Sample: planning on may take their pages.
  void pack(const StepPlan& plan);
  // Packed samples that a guide steers and that draw: make_mask() is due before they are sampled.
  const std::vector<Sample*>& guided() const { return guided_; }
  // Runs what was packed. Throws what the model throws.
  void run(Sink& sink);
  // Of the last run: inside the model's forward pass, and its logits and sampling.
  int64_t forward_ns() const { return forward_ns_; }
  int64_t sample_ns() const { return sample_ns_; }
  // Keys that the last run's rows attended to, summed.
  double keys() const { return keys_; }

 private:
  struct LogitRow {
    Sample* sample;
    int32_t position;  // the token that the row speaks of
    bool draw, pool;  // else score
  };
  void sample(Sink& sink);
  size_t pool(Sink& sink, size_t begin);
  SampleRow sample_row(const LogitRow& row) const;
  static int32_t top_width(const LogitRow& row) {
    return row.draw ? row.sample->top_width() : row.sample->prompt_top_width();
  }

  Model& model_;
  const int32_t vocab_;
  std::vector<int32_t> tokens_, positions_;  // [rows]
  struct Group {
    std::vector<AttentionSeq> seqs;   // [seqs]
    std::vector<int32_t> page_table;  // [seqs, their pages]
    std::vector<int32_t> slots;       // [rows]
  };
  std::vector<Group> groups_;
  std::vector<int32_t> logit_rows_;  // [logit rows] rows of the batch
  std::vector<LogitRow> wanted_;     // [logit rows]
  std::vector<Sample*> guided_;
  std::vector<float> hidden_;          // [max_logit_rows, dim], from the first embedding on
  int32_t max_context_ = 0;
  double keys_ = 0;
  int64_t forward_ns_ = 0, sample_ns_ = 0;
  std::vector<SampleRow> params_;      // [logit rows]
  std::vector<SampleResult> results_;  // [max_logit_rows]
  std::vector<TokenLogprob> top_;      // a slice's rows * widest
};

}  // namespace orlop
