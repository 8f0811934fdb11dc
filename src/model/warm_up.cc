#include "model/warm_up.h"

#include <algorithm>

#include "base/checked.h"
#include "model/batch.h"

namespace orlop {
namespace {

// Sequences of `length` tokens (the last one of what is left), `rows` tokens in all.
class Arrays {
 public:
  Arrays(const Model& model, int32_t rows, int32_t length) {
    const ModelLimits& l = model.limits();
    for (int32_t begin = 0; begin < rows; begin += length) {
      const int32_t n = std::min(length, rows - begin);
      const auto first = static_cast<int32_t>(table_.size());
      seqs_.push_back({begin, n, 0, first, static_cast<int32_t>(seqs_.size())});
      for (int32_t p = 0; p < div_up(n, l.page_tokens); ++p) table_.push_back(first + p);
      for (int32_t p = 0; p < n; ++p) {
        tokens_.push_back((begin + p) % model.config().vocab);
        positions_.push_back(p);
        slots_.push_back((first + p / l.page_tokens) * l.page_tokens + p % l.page_tokens);
      }
    }
    const int32_t kept = std::min(rows, l.max_logit_rows);
    SampleRow sample{};  // with all that takes memory
    sample.temperature = 1;
    sample.top_k = 40;
    sample.top_p = sample.min_p = 0.5f;
    sample.repetition_penalty = 1;
    sample.n_logprobs = 1;
    sample.given = -1;
    for (int32_t row = rows - kept; row < rows; ++row) {
      logit_rows_.push_back(row);
      samples_.push_back(sample);
    }
  }

  Batch batch(size_t groups) const {
    Batch b;
    b.tokens = tokens_;
    b.positions = positions_;
    for (size_t g = 0; g < groups; ++g) b.groups[g] = {seqs_, table_, slots_};
    b.logit_rows = logit_rows_;
    b.samples = samples_;
    b.max_context = seqs_.empty() ? 0 : seqs_.front().rows;
    b.last_part_only = true;
    return b;
  }

 private:
  std::vector<int32_t> tokens_, positions_, table_, slots_, logit_rows_;
  std::vector<AttentionSeq> seqs_;
  std::vector<SampleRow> samples_;
};

// Tokens of a prompt, and of all prompts together.
int32_t prompt_length(const ModelLimits& l) { return std::min(l.max_rows, l.max_context); }
int32_t prompt_rows(const ModelLimits& l) {
  return static_cast<int32_t>(std::min<int64_t>(l.max_rows, int64_t{prompt_length(l)} * l.max_seqs));
}
int32_t decode_rows(const ModelLimits& l) { return std::min(l.max_seqs, l.max_rows); }

void run(Model& model, const Arrays& arrays) {
  const Batch batch = arrays.batch(model.groups().size());
  const auto rows = static_cast<int32_t>(batch.logit_rows.size());
  std::vector<SampleResult> results(static_cast<size_t>(rows));
  std::vector<TokenLogprob> top(static_cast<size_t>(rows));
  model.forward(batch);
  model.logits(0, rows);
  model.sample(results.data(), top.data(), 1);
}

}  // namespace

std::vector<int64_t> warm_up_pages(const Model& model) {
  const ModelLimits& l = model.limits();
  const int64_t length = prompt_length(l), rows = prompt_rows(l);
  const int64_t pages = rows / length * div_up<int64_t>(length, l.page_tokens) + div_up<int64_t>(rows % length, l.page_tokens);
  return std::vector<int64_t>(model.groups().size(), std::max<int64_t>(pages, decode_rows(l)));
}

void warm_up(Model& model) {
  const ModelLimits& l = model.limits();
  run(model, Arrays(model, prompt_rows(l), prompt_length(l)));
  // Once, once more to be known again, and once as what is known.
  const Arrays decode(model, decode_rows(l), 1);
  for (int i = 0; i < 3; ++i) run(model, decode);
}

}  // namespace orlop
