// The largest step of a model, as a GPU's KV budget asks for it: within the limits and the pages that it says.
#include <cmath>

#include "check.h"
#include "model/harness.h"
#include "model/warm_up.h"

namespace orlop::test {
namespace {

void warm(const char* name, int32_t rows, int32_t seqs, int32_t context, int32_t page, KvType kv) {
  const std::unique_ptr<Backend> backend = make_backend({.device = test_device(), .threads = 2});
  ModelLimits limits;
  limits.max_rows = rows;
  limits.max_seqs = seqs;
  limits.max_context = context;
  limits.max_logit_rows = std::min(8, rows);
  limits.page_tokens = page;
  limits.kv_type = kv;
  const auto model = load_model(Checkpoint::open(std::string(TEST_DATA) + "/tiny/" + name, LoadMode::mmap),
                                backend->exec(), limits, nullptr);
  const std::vector<int64_t> pages = warm_up_pages(*model);
  CHECK(pages.size() == model->groups().size());
  const int64_t tokens = std::min<int64_t>(rows, int64_t{seqs} * std::min(rows, context));
  CHECK(pages[0] * page >= tokens);
  CHECK(pages[0] >= std::min(seqs, rows));
  model->allocate_cache(pages);
  // What a step reads without having written it turns its logits into NaN, and no token is drawn.
  for (size_t g = 0; g < pages.size(); ++g)
    for (int64_t p = 0; p < pages[g]; ++p) model->poison_page(static_cast<int>(g), static_cast<int32_t>(p));
  warm_up(*model);
  const float* logits = model->logits(0, 1);
  std::vector<float> row(static_cast<size_t>(model->config().vocab));
  backend->exec().device->download(row.data(), logits, row.size() * sizeof(float));
  for (const float v : row) CHECK(std::isfinite(v));
  // The cache is taken anew afterwards, without pages and with them.
  model->allocate_cache(std::vector<int64_t>(pages.size(), 0));
  model->allocate_cache(pages);
  warm_up(*model);
}

TEST(largest_steps_stay_within_limits_and_pages) {
  for (const KvType kv : {KvType::bf16, KvType::int8}) {
    warm("llama", 128, 16, 256, 16, kv);   // one prompt
    warm("llama", 128, 16, 50, 16, kv);    // several
    warm("llama", 128, 2, 50, 16, kv);     // fewer rows than a step could have
    warm("llama", 5, 16, 256, 16, kv);     // fewer rows than sequences
    warm("mistral-window", 100, 8, 256, 16, kv);
  }
  warm("llama", 33, 40, 7, 8, KvType::f16);
}

}  // namespace
}  // namespace orlop::test

int main(int argc, char** argv) { return orlop::test::test_main(argc, argv); }
