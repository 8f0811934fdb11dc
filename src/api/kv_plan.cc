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

// The groups with what a page takes in the part's layers.
std::vector<CacheGroup> groups_of(std::vector<CacheGroup> groups, const Part& part, const KvDesc& desc) {
  for (CacheGroup& g : groups)
    g.page_bytes = part.exec.kernels->kv_page_bytes(desc) *
                   static_cast<size_t>(std::count_if(g.layers.begin(), g.layers.end(), [&](int32_t layer) {
                     return layer >= part.begin && layer < part.end;
                   }));
  return groups;
}

int64_t page_of_each(const std::vector<CacheGroup>& groups) {
  int64_t bytes = 0;
  for (const CacheGroup& g : groups) bytes += checked_cast<int64_t>(g.page_bytes, "KV page bytes");
  return bytes;
}

}  // namespace

int64_t KvPlan::pages_in_all() const {
  int64_t sum = 0;
  for (const int64_t n : pages) sum += n;
  return sum;
}

uint64_t weights_of_side(const Config& model, std::span<const KvSide> sides, size_t side, uint64_t weights) {
  if (sides.size() == 1) return weights;
  const Part& p = sides[side].part;
  const double dim = model.dim, q = 1.0 * model.heads * model.head_dim, kv = 1.0 * model.kv_heads * model.head_dim;
  const double layer = dim * (2 * q + 2 * kv + 3.0 * model.ffn_dim), words = dim * model.vocab;
  const double all = layer * model.layers + words * (model.tied_embeddings ? 1 : 2);
  const double own = layer * (p.end - p.begin) + (side == 0 ? words : 0) + (side + 1 == sides.size() ? words : 0);
  return static_cast<uint64_t>(static_cast<double>(weights) * (own / all));
}

KvPlan plan_kv(const EngineConfig& config, const Config& model, KvType type, std::span<const KvSide> sides) {
  KvPlan plan;
  const KvDesc desc{type, model.kv_heads, model.head_dim, config.block_size};
  std::vector<Part> parts;
  for (const KvSide& s : sides) parts.push_back(s.part);
  plan.groups = cache_groups(model, layer_page_bytes(desc, parts));
  for (const Part& p : parts) {
    const int64_t seats = checked_mul<int64_t>(
        checked_cast<int64_t>(p.exec.kernels->kv_tail_bytes(desc), "KV tail bytes"),
        checked_mul<int64_t>(p.end - p.begin, config.max_running_seqs, "KV tail bytes"),
        "KV tail bytes");
    plan.sides.push_back({seats, seats});
    plan.seats_bytes += seats;
  }
  const int64_t page_bytes = page_of_each(plan.groups);
  if (config.max_context && *config.max_context > model.max_position)
    fail(Status::invalid_argument, "max_context: ", *config.max_context,
         " is more than the model's ", model.max_position, " positions");
  const int64_t context = config.max_context.value_or(model.max_position);
  // Cache slots are 32-bit numbers.
  const int64_t most = std::numeric_limits<int32_t>::max() / config.block_size - 1;
  if (config.kv_bytes) {
    plan.why = "kv_bytes";
    const int64_t budget = *config.kv_bytes - plan.seats_bytes;
    if (budget < page_bytes)
      fail(Status::invalid_argument, "kv_bytes: ", *config.kv_bytes, " is less than one page of ",
           page_bytes, " bytes",
           plan.seats_bytes ? cat(" and the open tiles of max_running_seqs (", plan.seats_bytes,
                                  " bytes)")
                            : "");
    plan.pages = split(config, plan.groups, budget);
  } else {
    // What all sequences can use at their longest, but at most a part of the memory that is left.
    const int64_t full =
        checked_mul<int64_t>(div_up<int64_t>(context, config.block_size), config.max_running_seqs,
                             "KV pages");
    plan.why = "max_running_seqs times max_context";
    plan.pages.assign(plan.groups.size(), most);
    for (size_t i = 0; i < sides.size(); ++i) {
      const std::vector<CacheGroup> groups = groups_of(plan.groups, parts[i], desc);
      const int64_t bytes = page_of_each(groups);
      if (bytes == 0) continue;
      const double part = config.kv_fraction.value_or(sides[i].fraction);
      const auto most_bytes = static_cast<int64_t>(std::min(
          static_cast<double>(sides[i].left) * part, static_cast<double>(int64_t{1} << 62)));
      const int64_t wanted = checked_mul<int64_t>(std::min(full, most), bytes, "KV cache bytes");
      const int64_t budget = std::max(std::min(wanted, most_bytes - plan.sides[i].seats_bytes), bytes);
      const std::vector<int64_t> pages = split(config, groups, budget);
      bool fewer = false;
      for (size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].page_bytes == 0) continue;
        fewer |= pages[g] < plan.pages[g];
        plan.pages[g] = std::min(plan.pages[g], pages[g]);
      }
      if (fewer && budget < wanted)
        plan.why = cat(part, " of the memory that is left",
                       sides.size() > 1 ? cat(" on ", parts[i].exec.device->name()) : "");
    }
  }
  plan.bytes = plan.seats_bytes;
  int64_t tokens = std::numeric_limits<int32_t>::max();
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    plan.pages[g] = std::clamp<int64_t>(plan.pages[g], 1, most);
    plan.bytes += plan.pages[g] * static_cast<int64_t>(plan.groups[g].page_bytes);
    for (size_t i = 0; i < parts.size(); ++i)
      plan.sides[i].bytes += plan.pages[g] * static_cast<int64_t>(groups_of(plan.groups, parts[i], desc)[g].page_bytes);
    if (plan.groups[g].window == 0) tokens = std::min(tokens, plan.tokens(g, config.block_size));
  }
  plan.max_context = config.max_context ? *config.max_context
                                        : static_cast<int32_t>(std::min(context, tokens));
  return plan;
}

}  // namespace orlop::api
