// Executes a plan's page moves and holds the memory of the host tier.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/plan.h"
#include "model/model.h"

namespace orlop {

class PageMover {
 public:
  // host_slots: pages of the second tier, by group. Their memory is taken as it is first used.
  PageMover(Model& model, const std::vector<int64_t>& host_slots);
  ~PageMover();  // copies that are still on their way to the tier
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // In the one order that is right: out, poison what was freed, in, copies, seats. Each list is
  // empty afterwards. busy: the device has a step to finish before.
  void run(StepPlan& plan, std::vector<PagePools::Freed>& freed, bool busy);

  // What it takes to copy a page to or from the host tier, a running mean; 0: none was copied yet.
  double copy_page_ns() const { return copy_page_ns_; }

 private:
  std::byte* slot(int group, int32_t slot) const;
  Model& model_;
  double copy_page_ns_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> tiers_;  // [groups][slots, page_bytes]
};

// How many pages of each group a tier of `bytes` holds, the groups' shares as those of their pools.
std::vector<int64_t> host_tier_slots(const Model& model, const std::vector<int64_t>& pages,
                                     size_t bytes);

}  // namespace orlop
