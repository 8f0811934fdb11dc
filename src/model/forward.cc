// The decoder loop, once for every family, and the Model that owns what it runs on.
#include "model/forward.h"

#include <algorithm>

#include "base/checked.h"
#include "model/staging.h"
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
          const Exec& exec, const ModelLimits& limits, LoadProgress* progress)
      : config_(std::move(config)),
        limits_(limits),
        exec_(exec),
        cache_(config_, limits_, exec_),
        weights_(load_weights(*checkpoint, config_, arch, limits.compute, limits.quant, exec_,
                              progress)),
        staging_(*exec_.device, batch_bytes(sampling_arrays)) {
    allocate_workspace();
    upload_rope();
  }

  const Config& config() const override { return config_; }
  const ModelLimits& limits() const override { return limits_; }
  const std::vector<CacheGroup>& groups() const override { return cache_.groups(); }
  size_t weight_bytes() const override { return weights_.bytes; }
  WeightFacts weight_facts() const override { return weights_.facts; }
  size_t workspace_bytes() const override {
    return storage_.bytes() + 2 * staging_.bytes() + results_.bytes() + top_.bytes();
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
    wait(mark());
    cache_.synced();
  }

  void forward(const Batch& batch) override {
    upload_batch(batch);
    const int64_t rows = device_batch_.rows;
    if (rows == 0) return;
    const Step step{exec_, config_, cache_, work_, device_batch_, rope_half_};
    ops::rope_table(exec_, {.positions = device_batch_.positions, .inv_freq = inv_freq_.as<float>(),
                            .scale = rope_scale_, .rows = rows, .half = rope_half_,
                            .cos = work_.cos, .sin = work_.sin});
    ops::embed(exec_, {.desc = &weights_.embed.desc, .packed = weights_.embed.packed,
                       .ids = device_batch_.tokens, .scale = 1.0f, .out = work_.x, .rows = rows,
                       .previous = results_.as<SampleResult>()});
    for (int32_t i = 0; i < config_.layers; ++i) {
      const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
      attention_block(step, layer, i);
      mlp_block(step, layer);
    }
    const int64_t kept = device_batch_.logit_row_count;
    ops::gather(exec_, {.x = work_.x, .x_stride = config_.dim, .index = device_batch_.logit_rows,
                        .out = work_.h, .rows = kept, .dim = config_.dim});
    ops::norm(exec_, {.x = work_.h, .x_stride = config_.dim, .weight = weights_.final_norm,
                      .eps = config_.norm_eps, .out = work_.h, .out_stride = config_.dim,
                      .rows = kept, .dim = config_.dim});
  }

  const float* logits(int32_t begin, int32_t count) override {
    if (begin < 0 || count < 0 || count > limits_.max_logit_rows ||
        begin + count > device_batch_.logit_row_count)
      fail(Status::internal, "logits: rows ", begin, " + ", count, " were not kept");
    slice_begin_ = begin;
    slice_rows_ = count;
    const Step step{exec_, config_, cache_, work_, device_batch_, rope_half_};
    linear(step, weights_.head, work_.h + int64_t{begin} * config_.dim, work_.logits, count);
    return work_.logits;
  }

  void take_masks() override {
    if (masks_.empty()) return;
    const size_t bytes = mask_bytes();
    for (size_t i = 0; i < masks_.size(); ++i)
      exec_.device->upload(mask_storage_.as<std::byte>() + i * bytes, masks_[i],
                           sizeof(uint32_t) * static_cast<size_t>(div_up(config_.vocab, 32)));
    masks_.clear();
  }

  void hidden(int32_t begin, int32_t count, float* out) override {
    if (begin < 0 || count < 0 || begin + count > device_batch_.logit_row_count)
      fail(Status::internal, "hidden: rows ", begin, " + ", count, " were not kept");
    exec_.device->download(out, work_.h + int64_t{begin} * config_.dim,
                           sizeof(float) * static_cast<size_t>(count) * static_cast<size_t>(config_.dim));
  }

  uint64_t sample_later(SampleResult* results, TokenLogprob* top, int32_t top_stride) override {
    if (!device_batch_.samples || top_stride < 0 || (top_stride > 0 && !top))
      fail(Status::internal, "sample: the batch says nothing of its rows, or no room for the best");
    const auto rows = static_cast<size_t>(slice_rows_);
    if (rows == 0) return mark();
    const size_t top_bytes = sizeof(TokenLogprob) * rows * static_cast<size_t>(top_stride);
    if (top_.bytes() < top_bytes) top_ = DeviceBuffer(*exec_.device, top_bytes);
    SampleResult* const drawn = results_.as<SampleResult>() + slice_begin_;
    ops::sample(exec_, {.logits = work_.logits, .logits_stride = config_.vocab,
                        .rows = slice_rows_, .vocab = config_.vocab,
                        .params = device_batch_.samples + slice_begin_, .results = drawn,
                        .top = top_bytes ? top_.as<TokenLogprob>() : nullptr,
                        .top_stride = top_stride, .workspace = work_.scratch});
    const uint64_t ticket =
        exec_.device->download_later(results, drawn, sizeof(SampleResult) * rows);
    return top_bytes ? exec_.device->download_later(top, top_.data(), top_bytes) : ticket;
  }

  uint64_t mark() override { return exec_.device->download_later(nullptr, nullptr, 0); }
  void wait(uint64_t ticket) override { exec_.device->wait(ticket); }
  bool asynchronous() const override { return exec_.device->asynchronous(); }

 private:
  size_t max_pages() const {
    return static_cast<size_t>(limits_.max_seqs) *
           static_cast<size_t>(div_up(limits_.max_context, limits_.page_tokens));
  }

  // Bytes of a step's arrays at most, with `sampling` bytes of token counts, biases and the like.
  size_t batch_bytes(size_t sampling) const {
    const auto rows = static_cast<size_t>(limits_.max_rows);
    const size_t group = Staging::room<AttentionSeq>(static_cast<size_t>(limits_.max_seqs)) +
                         Staging::room<int32_t>(max_pages()) + Staging::room<int32_t>(rows);
    return 3 * Staging::room<int32_t>(rows) + Staging::room<SampleRow>(rows) +
           cache_.groups().size() * group + sampling;
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
    return n ? staging_.add(std::span<const T>(values, static_cast<size_t>(n))) : nullptr;
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
      mask_storage_ = DeviceBuffer(*exec_.device, mask_bytes() * static_cast<size_t>(limits_.max_seqs));
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
    return staging_.add(std::span<const SampleRow>(rows_.data(), samples.size()));
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
    const int32_t kept = device_batch_.logit_row_count;
    device_batch_ = {};
    check_batch(b, kept);
    slice_begin_ = slice_rows_ = 0;
    if (b.tokens.empty()) return;
    staging_.reserve(batch_bytes(sampling_bytes(b.samples)));
    staging_.clear();
    DeviceBatch& d = device_batch_;
    d.rows = static_cast<int32_t>(b.tokens.size());
    d.max_context = b.max_context;
    d.logit_row_count = static_cast<int32_t>(b.logit_rows.size());
    d.tokens = staging_.add(b.tokens);
    d.positions = staging_.add(b.positions);
    d.logit_rows = staging_.add(b.logit_rows);
    // What grows from step to step comes last: steps of equal batches then have equal addresses, and a
    // backend may run them as it ran the one before.
    for (size_t g = 0; g < cache_.groups().size(); ++g) {
      d.groups[g].seq_count = static_cast<int32_t>(b.groups[g].seqs.size());
      d.groups[g].seqs = staging_.add(b.groups[g].seqs);
      d.groups[g].slots = staging_.add(b.groups[g].slots);
    }
    d.samples = add_samples(b.samples);
    for (size_t g = 0; g < cache_.groups().size(); ++g)
      d.groups[g].page_table = staging_.add(b.groups[g].page_table);
    staging_.upload();
  }

  // One allocation for all activations.
  void allocate_workspace() {
    const Kernels& k = *exec_.kernels;
    const auto rows = static_cast<size_t>(limits_.max_rows);
    const auto dim = static_cast<size_t>(config_.dim);
    const size_t q = static_cast<size_t>(config_.heads) * static_cast<size_t>(config_.head_dim);
    const size_t kv = static_cast<size_t>(config_.kv_heads) * static_cast<size_t>(config_.head_dim);
    const auto half = static_cast<size_t>(config_.rope.dim / 2);

    size_t scratch = std::max(
        k.attention_workspace(cache_.desc(), config_.heads, limits_.max_rows, limits_.max_context),
        k.sample_workspace(limits_.max_logit_rows, config_.vocab));
    scratch = std::max(scratch, k.matmul_workspace(weights_.head.desc, limits_.max_logit_rows));
    for (const LayerWeights& l : weights_.layers)
      for (const Linear* w : {&l.qkv, &l.out, &l.gate_up, &l.down})
        scratch = std::max(scratch, k.matmul_workspace(w->desc, limits_.max_rows));

    const struct {
      float** slot;
      size_t count;
    } buffers[] = {
        {&work_.x, rows * dim},
        {&work_.h, rows * dim},
        {&work_.qkv, rows * (q + 2 * kv)},
        {&work_.attended, rows * q},
        {&work_.ffn, rows * static_cast<size_t>(config_.ffn_dim)},
        {&work_.cos, rows * half},
        {&work_.sin, rows * half},
        {&work_.logits,
         static_cast<size_t>(limits_.max_logit_rows) * static_cast<size_t>(config_.vocab)},
    };
    size_t bytes = 0;
    for (const auto& b : buffers) bytes += round_up(b.count * sizeof(float), size_t{256});
    storage_ = DeviceBuffer(*exec_.device, bytes + scratch);
    auto* at = storage_.as<std::byte>();
    for (const auto& b : buffers) {
      *b.slot = reinterpret_cast<float*>(at);
      at += round_up(b.count * sizeof(float), size_t{256});
    }
    work_.scratch = at;
    rows_.resize(rows);
    masks_.reserve(static_cast<size_t>(limits_.max_seqs));
    results_ = DeviceBuffer(*exec_.device, rows * sizeof(SampleResult));
    // Room for the best 32 of every row, or for one row of the whole vocabulary.
    top_ = DeviceBuffer(*exec_.device, std::max(static_cast<size_t>(limits_.max_logit_rows) * 32,
                                                static_cast<size_t>(config_.vocab)) *
                                           sizeof(TokenLogprob));
  }

  void upload_rope() {
    const RopeFrequencies rope =
        rope_frequencies(config_.rope, config_.max_position, limits_.max_context);
    rope_half_ = static_cast<int32_t>(rope.inv_freq.size());
    rope_scale_ = rope.scale;
    inv_freq_ = DeviceBuffer(*exec_.device, rope.inv_freq.size() * sizeof(float));
    exec_.device->upload(inv_freq_.data(), rope.inv_freq.data(), inv_freq_.bytes());
  }

  const Config config_;
  const ModelLimits limits_;
  const Exec exec_;
  KvCache cache_;
  Weights weights_;
  DeviceBuffer storage_;  // work_ lies in it
  Workspace work_;
  DeviceBuffer inv_freq_;  // [rope_half_]
  int32_t rope_half_ = 0;
  float rope_scale_ = 1.0f;
  Staging staging_;
  DeviceBuffer results_;         // [max_rows] what the kept rows drew; the next step's tokens may lie here
  DeviceBuffer top_;             // of a slice: the best tokens
  std::vector<SampleRow> rows_;  // [max_rows] on their way to the device
  std::vector<const uint32_t*> masks_;  // host memory, to be taken; at most max_seqs
  DeviceBuffer mask_storage_;           // [max_seqs, mask_bytes()], from the first mask on
  DeviceBatch device_batch_;
  int32_t slice_begin_ = 0, slice_rows_ = 0;  // of the last logits()
};

}  // namespace

std::unique_ptr<Model> load_model(std::shared_ptr<Checkpoint> checkpoint, const Exec& exec,
                                  const ModelLimits& limits, LoadProgress* progress) {
  ops::check_table(*exec.kernels);
  Config config = read_config(*checkpoint);
  const Arch* arch = find_arch(config.arch);
  if (!arch) fail(Status::unsupported, checkpoint->path, ": no decoder family named ", config.arch);
  return std::make_unique<Decoder>(std::move(checkpoint), std::move(config), *arch, exec, limits,
                                   progress);
}

}  // namespace orlop
