// The decoder loop, once for every family, and the Model that owns what it runs on.
#include "model/forward.h"

#include <algorithm>

#include "base/checked.h"
#include "model/side.h"
#include "ops/ops.h"

namespace orlop {

void linear(const Step& s, const Linear& w, const float* x, float* out, int64_t rows,
            const LinearUse& use) {
  ops::matmul(s.exec, {.desc = &w.desc, .packed = w.packed, .x = x, .x_stride = w.desc.k,
                       .out = out, .out_stride = w.desc.n(), .m = rows, .bias = w.bias,
                       .accumulate = use.accumulate, .workspace = s.work.scratch,
                       .norm_weight = use.norm, .norm_eps = s.config.norm_eps, .normed = s.work.h,
                       .narrow_x = use.narrow_x, .narrow_out = use.narrow_out});
}

bool narrow_for(const Step& s, const Linear& reader) {
  return s.exec.kernels->narrow && reader.desc.compute != Compute::fp32;
}

namespace {

// Room for sampling arrays (token counts, biases) from the start; a step that needs more takes it.
constexpr size_t sampling_arrays = size_t{64} << 10;

class Decoder final : public Model {
 public:
  Decoder(std::shared_ptr<Checkpoint> checkpoint, Config config, const Arch& arch,
          std::span<const Part> parts, const ModelLimits& limits, LoadProgress* progress)
      : config_(std::move(config)),
        limits_(limits),
        cache_(config_, limits_, parts),
        weights_(load_weights(*checkpoint, config_, arch, parts, limits.quant, progress)) {
    const RopeFrequencies rope =
        rope_frequencies(config_.rope, config_.max_position, limits_.max_context);
    rope_half_ = static_cast<int32_t>(rope.inv_freq.size());
    rope_scale_ = rope.scale;
    sides_.reserve(parts.size());
    for (const Part& part : parts) {
      const bool last = &part == &parts.back();
      sides_.emplace_back(part, last, config_, limits_, cache_, weights_, rope,
                          last ? sampling_arrays : 0);
    }
    const auto rows = static_cast<size_t>(limits_.max_rows);
    rows_.resize(rows);
    masks_.reserve(static_cast<size_t>(limits_.max_seqs));
    results_ = DeviceBuffer(device(), rows * sizeof(SampleResult));
    // Room for the best 32 of every row, or for one row of the whole vocabulary.
    top_ = DeviceBuffer(device(), std::max(static_cast<size_t>(limits_.max_logit_rows) * 32,
                                           static_cast<size_t>(config_.vocab)) *
                                      sizeof(TokenLogprob));
    if (sides_.size() == 1) return;
    crossing_.resize(rows * static_cast<size_t>(config_.dim));
    drawn_ = DeviceBuffer(*sides_.front().exec.device, results_.bytes());
    drawn_crossing_.resize(rows);
  }

  const Config& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }
  const std::vector<CacheGroup>& groups() const override { return cache_.groups(); }
  size_t weight_bytes() const override { return weights_.bytes; }
  std::vector<size_t> part_weight_bytes() const override {
    std::vector<size_t> bytes;
    for (const DeviceBuffer& b : weights_.storage) bytes.push_back(b.bytes());
    return bytes;
  }
  WeightFacts weight_facts() const override { return weights_.facts; }
  size_t workspace_bytes() const override {
    size_t bytes = results_.bytes() + top_.bytes() + drawn_.bytes();
    for (const Side& s : sides_) bytes += s.bytes();
    return bytes;
  }
  void allocate_cache(const std::vector<int64_t>& pages) override {
    cache_.allocate(pages, limits_.max_seqs);
  }
  size_t seat_bytes() const override { return cache_.seat_bytes(); }
  void poison_page(int group, int32_t page) override { cache_.poison(group, page); }
  void copy_page(int group, int32_t from, int32_t to) override {
    cache_.copy_page(group, from, to);
  }
  void copy_seat(int32_t from, int32_t to) override { cache_.copy_seat(from, to); }
  void read_page(int group, int32_t page, void* host) override {
    cache_.read_page(group, page, host);
  }
  void write_page(int group, int32_t page, const void* host) override {
    cache_.write_page(group, page, host);
  }
  void sync() override {
    for (const Side& s : sides_) s.exec.device->wait(s.exec.device->download_later(nullptr, nullptr, 0));
    cache_.synced();
  }

  void forward(const Batch& batch) override {
    upload_batch(batch);
    if (last().batch.rows == 0) return;
    const SampleResult* const drawn = what_was_drawn(batch);
    for (Side& s : sides_) {
      if (batch.last_part_only && &s != &last()) continue;
      const Step step = step_on(s);
      const bool first = &s == &sides_.front();
      if (!first && !batch.last_part_only) take_over(s, (&s)[-1]);
      if (s.begin < s.end)
        ops::rope_table(s.exec, {.positions = s.batch.positions, .inv_freq = s.inv_freq.as<float>(),
                                 .scale = rope_scale_, .rows = s.batch.rows, .half = rope_half_,
                                 .cos = s.work.cos, .sin = s.work.sin});
      if (first)
        ops::embed(s.exec, {.desc = &weights_.embed.desc, .packed = weights_.embed.packed,
                            .ids = s.batch.tokens, .scale = 1.0f, .out = s.work.x,
                            .rows = s.batch.rows, .previous = drawn});
      for (int32_t i = s.begin; i < s.end; ++i) {
        const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
        attention_block(step, layer, i);
        mlp_block(step, layer);
      }
    }
    const Side& s = last();
    const int64_t kept = s.batch.logit_row_count;
    ops::gather(s.exec, {.x = s.work.x, .x_stride = config_.dim, .index = s.batch.logit_rows,
                         .out = s.work.h, .rows = kept, .dim = config_.dim});
    ops::norm(s.exec, {.x = s.work.h, .x_stride = config_.dim, .weight = weights_.final_norm,
                       .eps = config_.norm_eps, .out = s.work.h, .out_stride = config_.dim,
                       .rows = kept, .dim = config_.dim});
  }

  const float* logits(int32_t begin, int32_t count) override {
    if (begin < 0 || count < 0 || count > limits_.max_logit_rows ||
        begin + count > last().batch.logit_row_count)
      fail(Status::internal, "logits: rows ", begin, " + ", count, " were not kept");
    slice_begin_ = begin;
    slice_rows_ = count;
    const Workspace& work = last().work;
    linear(step_on(last()), weights_.head, work.h + int64_t{begin} * config_.dim, work.logits, count);
    return work.logits;
  }

  void take_masks() override {
    if (masks_.empty()) return;
    const size_t bytes = mask_bytes();
    for (size_t i = 0; i < masks_.size(); ++i)
      device().upload(mask_storage_.as<std::byte>() + i * bytes, masks_[i],
                      sizeof(uint32_t) * static_cast<size_t>(div_up(config_.vocab, 32)));
    masks_.clear();
  }

  void hidden(int32_t begin, int32_t count, float* out) override {
    if (begin < 0 || count < 0 || begin + count > last().batch.logit_row_count)
      fail(Status::internal, "hidden: rows ", begin, " + ", count, " were not kept");
    device().download(out, last().work.h + int64_t{begin} * config_.dim,
                      sizeof(float) * static_cast<size_t>(count) * static_cast<size_t>(config_.dim));
  }

  uint64_t sample_later(SampleResult* results, TokenLogprob* top, int32_t top_stride) override {
    const Side& s = last();
    if (!s.batch.samples || top_stride < 0 || (top_stride > 0 && !top))
      fail(Status::internal, "sample: the batch says nothing of its rows, or no room for the best");
    const auto rows = static_cast<size_t>(slice_rows_);
    if (rows == 0) return mark();
    const size_t top_bytes = sizeof(TokenLogprob) * rows * static_cast<size_t>(top_stride);
    if (top_.bytes() < top_bytes) top_ = DeviceBuffer(device(), top_bytes);
    SampleResult* const drawn = results_.as<SampleResult>() + slice_begin_;
    ops::sample(s.exec, {.logits = s.work.logits, .logits_stride = config_.vocab,
                         .rows = slice_rows_, .vocab = config_.vocab,
                         .params = s.batch.samples + slice_begin_, .results = drawn,
                         .top = top_bytes ? top_.as<TokenLogprob>() : nullptr,
                         .top_stride = top_stride, .workspace = s.work.scratch});
    const uint64_t ticket = device().download_later(results, drawn, sizeof(SampleResult) * rows);
    return top_bytes ? device().download_later(top, top_.data(), top_bytes) : ticket;
  }

  uint64_t mark() override { return device().download_later(nullptr, nullptr, 0); }
  void wait(uint64_t ticket) override { device().wait(ticket); }
  // What is drawn on the last side is looked up on the first: the step between has to wait for it.
  bool asynchronous() const override { return sides_.size() == 1 && device().asynchronous(); }

 private:
  Side& last() { return sides_.back(); }
  Device& device() const { return *sides_.back().exec.device; }  // where logits and what is drawn lie
  Step step_on(const Side& s) const { return {s.exec, config_, cache_, s.work, s.batch, rope_half_}; }

  // The hidden states of all rows, from the side before.
  void take_over(const Side& s, const Side& before) {
    const size_t bytes =
        sizeof(float) * static_cast<size_t>(s.batch.rows) * static_cast<size_t>(config_.dim);
    before.exec.device->download(crossing_.data(), before.work.x, bytes);
    s.exec.device->upload(s.work.x, crossing_.data(), bytes);
  }

  // What the step before drew, where tokens are looked up.
  const SampleResult* what_was_drawn(const Batch& batch) {
    if (sides_.size() == 1) return results_.as<SampleResult>();
    if (std::any_of(batch.tokens.begin(), batch.tokens.end(), [](int32_t t) { return t < 0; })) {
      device().download(drawn_crossing_.data(), results_.data(), results_.bytes());
      sides_.front().exec.device->upload(drawn_.data(), drawn_crossing_.data(), drawn_.bytes());
    }
    return drawn_.as<SampleResult>();
  }

  static size_t sampling_bytes(std::span<const SampleRow> samples) {
    size_t bytes = 0;
    for (const SampleRow& s : samples) {
      if (s.count_n) bytes += Staging::room<TokenCount>(static_cast<size_t>(s.count_n));
      if (s.bias_n) bytes += Staging::room<TokenLogprob>(static_cast<size_t>(s.bias_n));
      if (s.forbidden_n) bytes += Staging::room<int32_t>(static_cast<size_t>(s.forbidden_n));
    }
    return bytes;
  }

  template <class T>
  const T* add_array(const T* values, int32_t n) {
    return n ? last().staging.add(std::span<const T>(values, static_cast<size_t>(n))) : nullptr;
  }

  // A row's mask on the device, on cache lines of its own.
  size_t mask_bytes() const {
    return round_up(sizeof(uint32_t) * static_cast<size_t>(div_up(config_.vocab, 32)), size_t{64});
  }

  // Where take_masks() will put the mask that a row names.
  const uint32_t* place_of_mask(const uint32_t* host) {
    if (masks_.size() == static_cast<size_t>(limits_.max_seqs))
      fail(Status::internal, "batch: more than ", limits_.max_seqs, " rows with masks");
    if (!mask_storage_.bytes())
      mask_storage_ = DeviceBuffer(device(), mask_bytes() * static_cast<size_t>(limits_.max_seqs));
    masks_.push_back(host);
    return reinterpret_cast<const uint32_t*>(mask_storage_.as<std::byte>() +
                                             (masks_.size() - 1) * mask_bytes());
  }

  const SampleRow* add_samples(std::span<const SampleRow> samples) {
    masks_.clear();
    if (samples.empty()) return nullptr;
    for (size_t i = 0; i < samples.size(); ++i) {
      SampleRow& row = rows_[i];
      row = samples[i];
      row.counts = add_array(row.counts, row.count_n);
      row.bias = add_array(row.bias, row.bias_n);
      row.forbidden = add_array(row.forbidden, row.forbidden_n);
      if (row.allowed) row.allowed = place_of_mask(row.allowed);
    }
    return last().staging.add(std::span<const SampleRow>(rows_.data(), samples.size()));
  }

  // kept: rows of the batch before.
  void check_batch(const Batch& b, int32_t kept) const {
    const auto rows = checked_cast<int32_t>(b.tokens.size(), "batch rows");
    if (rows > limits_.max_rows || b.positions.size() != b.tokens.size() ||
        b.logit_rows.size() > b.tokens.size() || b.max_context > limits_.max_context)
      fail(Status::internal, "batch of ", rows, " rows up to position ", b.max_context,
           " exceeds the limits set at load");
    for (const int32_t t : b.tokens)
      if (t < -kept)
        fail(Status::internal, "batch: the token of row ", -1 - t, " of the step before, which kept ", kept);
    if (!b.samples.empty() && b.samples.size() != b.logit_rows.size())
      fail(Status::internal, "batch: ", b.samples.size(), " entries of what to sample for ",
           b.logit_rows.size(), " rows");
    for (size_t g = 0; g < cache_.groups().size(); ++g) {
      if (b.groups[g].seqs.size() > static_cast<size_t>(limits_.max_seqs) ||
          b.groups[g].slots.size() != b.tokens.size())
        fail(Status::internal, "batch: ", b.groups[g].seqs.size(), " sequences and ",
             b.groups[g].slots.size(), " slots exceed the limits set at load");
      for (const AttentionSeq& s : b.groups[g].seqs)
        if (s.seat < 0 || s.seat >= limits_.max_seqs)
          fail(Status::internal, "batch: seat ", s.seat, " of ", limits_.max_seqs);
    }
  }

  void upload_batch(const Batch& b) {
    const int32_t kept = last().batch.logit_row_count;
    for (Side& s : sides_) s.batch = {};
    check_batch(b, kept);
    slice_begin_ = slice_rows_ = 0;
    if (b.tokens.empty()) return;
    const size_t groups = cache_.groups().size();
    for (Side& s : sides_) {
      const bool samples = &s == &last();
      s.staging.reserve(batch_bytes(limits_, groups, samples ? sampling_bytes(b.samples) : 0));
      s.staging.clear();
      s.add_rows(b, groups);
      if (samples) s.batch.samples = add_samples(b.samples);
      s.add_page_tables(b, groups);
      s.staging.upload();
    }
  }

  const Config config_;
  const ModelLimits limits_;
  KvCache cache_;
  Weights weights_;
  int32_t rope_half_ = 0;
  float rope_scale_ = 1.0f;
  std::vector<Side> sides_;  // [parts]
  std::vector<float> crossing_;  // [max_rows, dim] from side to side, on the host
  DeviceBuffer results_;         // [max_rows] what the kept rows drew; the next step's tokens may lie here
  DeviceBuffer top_;             // of a slice: the best tokens
  std::vector<SampleRow> rows_;  // [max_rows] on their way to the device
  std::vector<const uint32_t*> masks_;  // host memory, to be taken; at most max_seqs
  DeviceBuffer mask_storage_;           // [max_seqs, mask_bytes()], from the first mask on
  // Where there are several sides, a copy for the first, by way of the host.
  DeviceBuffer drawn_;                        // [max_rows]
  std::vector<SampleResult> drawn_crossing_;  // [max_rows]
  int32_t slice_begin_ = 0, slice_rows_ = 0;  // of the last logits()
};

}  // namespace

std::unique_ptr<Model> load_model(std::shared_ptr<Checkpoint> checkpoint, std::span<const Part> parts,
                                  const ModelLimits& limits, LoadProgress* progress) {
  Config config = read_config(*checkpoint);
  int32_t layers = 0;
  for (const Part& part : parts) {
    ops::check_table(*part.exec.kernels);
    if (part.begin != layers || part.end < layers)
      fail(Status::internal, "parts: layers ", part.begin, " to ", part.end, " after ", layers);
    layers = part.end;
  }
  if (parts.empty() || layers != config.layers)
    fail(Status::internal, "parts: ", layers, " of the model's ", config.layers, " layers");
  const Arch* arch = find_arch(config.arch);
  if (!arch) fail(Status::unsupported, checkpoint->path, ": no decoder family named ", config.arch);
  ModelLimits of_last = limits;
  of_last.compute = parts.back().compute;
  return std::make_unique<Decoder>(std::move(checkpoint), std::move(config), *arch, parts, of_last,
                                   progress);
}

std::unique_ptr<Model> load_model(std::shared_ptr<Checkpoint> checkpoint, const Exec& exec,
                                  const ModelLimits& limits, LoadProgress* progress) {
  const Part all{exec, 0, read_config(*checkpoint).layers, limits.compute};
  return load_model(std::move(checkpoint), {&all, 1}, limits, progress);
}

}  // namespace orlop
