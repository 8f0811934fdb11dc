// Executes plans: packs a ragged batch, runs the model, samples. All its memory is taken at construction.
//
// A step is packed, started and finished. Where two may be under way, one is started before the results of
// the one before it are known here: the tokens which that one draws are named by where they lie on the
// device.
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
    // The forward pass is done or on its way: now the masks of guided() must be there.
    virtual void before_sampling() = 0;
  };

  Runner(Model& model, bool two);
  // The plan's step needs what the step under way draws: that one has to be finished before pack().
  static bool depends(const StepPlan& plan);
  // Reads all that a step needs of its sequences, each a Sample: planning on may take their pages.
  void pack(const StepPlan& plan);
  // Packed samples that a guide steers and that draw: make_mask() is due before they are sampled.
  const std::vector<Sample*>& guided() const { return guided_; }
  // What was packed may be left to the device: its results have room, and none is taken on the way.
  bool may_be_left() const;
  // Starts what was packed. left: with all its sampling, so that another step may be started before this one
  // is finished; else finish() has to come first. Throws what the model throws; then nothing was started.
  void start(Sink& sink, bool left);
  // The first that was started and is not finished: waits for its results and hands them over. Whatever it
  // throws, that step is over.
  void finish(Sink& sink);
  // Waits for all that was started; its results are lost.
  void abandon() noexcept;
  // Of the step that was finished last.
  struct Took {
    int32_t rows = 0;
    double keys = 0;         // that its rows attended to, summed
    int64_t forward_ns = 0;  // inside the model's forward pass
    int64_t sample_ns = 0;   // and in its logits, sampling and waiting; of that
    int64_t finish_ns = 0;   // in finish()
    int64_t device_ns = 0;   // what the device took
  };
  const Took& took() const { return took_; }

 private:
  struct LogitRow {
    Sample* sample;
    int32_t position;  // the token that the row speaks of
    bool draw, pool;  // else score
  };
  struct Slice {  // of wanted rows: those whose logits are there at once
    size_t begin, count;
    int32_t stride;
    size_t top;  // where its best tokens begin
  };
  struct Flight {
    std::vector<LogitRow> wanted;       // [logit rows]
    std::vector<SampleResult> results;  // [logit rows]
    std::vector<TokenLogprob> top;
    std::vector<Slice> slices;  // of a step that was left
    Took took;
    int64_t began_ns = 0;
    uint64_t ticket = 0;
    bool left = false;
  };
  void sample(Flight& flight, Sink& sink);
  size_t pool(const Flight& flight, Sink& sink, size_t begin);
  Slice slice(const Flight& flight, size_t begin) const;
  uint64_t draw(Flight& flight, const Slice& slice);
  void hand_over(const Flight& flight, const Slice& slice, Sink& sink, int64_t now_ns);
  SampleRow sample_row(const LogitRow& row) const;
  void settle() noexcept;
  static int32_t top_width(const LogitRow& row) {
    return row.draw ? row.sample->top_width() : row.sample->prompt_top_width();
  }

  Model& model_;
  const int32_t vocab_;
  const bool two_;
  // ---- what was packed
  std::vector<int32_t> tokens_, positions_;  // [rows]
  struct Group {
    std::vector<AttentionSeq> seqs;   // [seqs]
    std::vector<int32_t> page_table;  // [seqs, their pages]
    std::vector<int32_t> slots;       // [rows]
  };
  std::vector<Group> groups_;
  std::vector<int32_t> logit_rows_;  // [logit rows] rows of the batch
  std::vector<SampleRow> params_;    // [logit rows]
  std::vector<Sample*> guided_;
  int32_t max_context_ = 0;
  size_t widest_ = 0;   // of the best tokens wanted
  bool pools_ = false;  // hidden states are wanted
  // ---- what was started
  Flight flights_[2];
  int next_ = 0;     // the one that pack() fills
  int started_ = 0;  // and not finished
  int64_t done_ns_ = 0;
  Took took_;
  std::vector<float> hidden_;  // [max_logit_rows, dim], from the first embedding on
};

}  // namespace orlop
