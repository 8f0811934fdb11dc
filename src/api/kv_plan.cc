#include "api/kv_plan.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "model/kv_cache.h"

namespace orlop::api {
namespace {

// Pages of a window group beyond which more only keep old prefixes: twice what all running sequences
// can hold of their windows, and a step's rows.
int64_t window_pages(const EngineConfig& config, int32_t window) {
  const int64_t block = config.block_size;
  return 2 * config.max_running_seqs * (div_up<int64_t>(window, block) + 1) +
         div_up<int64_t>(config.step_tokens, block) + 1;
}

// The most pages that `bytes` pay for: groups that keep everything get the same number each, a
// window group no more than it has a use for.
std::vector<int64_t> split(const EngineConfig& config, const std::vector<CacheGroup>& groups,
                           int64_t bytes) {
  std::vector<int64_t> pages(groups.size(), 0);
  std::vector<bool> settled(groups.size(), false);
  int64_t left = bytes;
  for (;;) {
    int64_t each = 0;
    for (size_t g = 0; g < groups.size(); ++g)
      if (!settled[g]) each += static_cast<int64_t>(groups[g].page_bytes);
    if (each == 0) return pages;
    const int64_t n = left / each;
    bool again = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (settled[g]) continue;
      pages[g] = n;
      const int64_t most = groups[g].window > 0 ? window_pages(config, groups[g].window) : n;
      if (most >= n || groups.size() == 1) continue;
      pages[g] = most;
      settled[g] = again = true;
      left -= most * static_cast<int64_t>(groups[g].page_bytes);
    }
    if (!again) return pages;
  }
}

}  // namespace

int64_t KvPlan::pages_in_all() const {
  int64_t sum = 0;
  for (const int64_t n : pages) sum += n;
  return sum;
}

KvPlan plan_kv(const EngineConfig& config, const Config& model, const Exec& exec, KvType type,
               uint64_t left, double fraction) {
  KvPlan plan;
  const KvDesc desc{type, model.kv_heads, model.head_dim, config.block_size};
  plan.groups = cache_groups(model, exec.kernels->kv_page_bytes(desc));
  plan.seats_bytes = checked_mul<int64_t>(
      checked_cast<int64_t>(exec.kernels->kv_tail_bytes(desc), "KV tail bytes"),
      checked_mul<int64_t>(model.layers, config.max_running_seqs, "KV tail bytes"),
      "KV tail bytes");
  int64_t page_bytes = 0;  // one page of every group
  for (const CacheGroup& g : plan.groups)
    page_bytes += checked_cast<int64_t>(g.page_bytes, "KV page bytes");
  if (config.max_context && *config.max_context > model.max_position)
    fail(Status::invalid_argument, "max_context: ", *config.max_context,
         " is more than the model's ", model.max_position, " positions");
  const int64_t context = config.max_context.value_or(model.max_position);
  // Cache slots are 32-bit numbers.
  const int64_t most = std::numeric_limits<int32_t>::max() / config.block_size - 1;
  int64_t budget;
  if (config.kv_bytes) {
    plan.why = "kv_bytes";
    budget = *config.kv_bytes - plan.seats_bytes;
    if (budget < page_bytes)
      fail(Status::invalid_argument, "kv_bytes: ", *config.kv_bytes, " is less than one page of ",
           page_bytes, " bytes",
           plan.seats_bytes ? cat(" and the open tiles of max_running_seqs (", plan.seats_bytes,
                                  " bytes)")
                            : "");
  } else {
    // What all sequences can use at their longest, but at most a part of the memory that is left.
    const int64_t full =
        checked_mul<int64_t>(div_up<int64_t>(context, config.block_size), config.max_running_seqs,
                             "KV pages");
    const double part = config.kv_fraction.value_or(fraction);
    const auto most_bytes = static_cast<int64_t>(
        std::min(static_cast<double>(left) * part, static_cast<double>(int64_t{1} << 62)));
    const int64_t wanted =
        checked_mul<int64_t>(std::min(full, most), page_bytes, "KV cache bytes");
    budget = std::max(std::min(wanted, most_bytes - plan.seats_bytes), page_bytes);
    plan.why = budget < wanted ? cat(part, " of the memory that is left") : "max_running_seqs times max_context";
  }
  plan.pages = split(config, plan.groups, budget);
  plan.bytes = plan.seats_bytes;
  int64_t tokens = std::numeric_limits<int32_t>::max();
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    plan.pages[g] = std::clamp<int64_t>(plan.pages[g], 1, most);
    plan.bytes += plan.pages[g] * static_cast<int64_t>(plan.groups[g].page_bytes);
    if (plan.groups[g].window == 0) tokens = std::min(tokens, plan.tokens(g, config.block_size));
  }
  plan.max_context = config.max_context ? *config.max_context
                                        : static_cast<int32_t>(std::min(context, tokens));
  return plan;
}

}  // namespace orlop::api
