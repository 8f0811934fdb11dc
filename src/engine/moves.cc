#include "engine/moves.h"

#include <limits>
#include <new>

#include "base/checked.h"
#include "base/error.h"
#include "engine/request.h"

namespace orlop {

PageMover::PageMover(Model& model, const std::vector<int64_t>& host_slots) : model_(model) {
  for (size_t g = 0; g < host_slots.size(); ++g) {
    const size_t bytes = checked_mul(static_cast<size_t>(host_slots[g]),
                                     model.groups()[g].page_bytes, "host tier bytes");
    // Not zeroed: pages of memory come as they are written.
    tiers_.emplace_back(bytes ? new (std::nothrow) std::byte[bytes] : nullptr);
    if (bytes && !tiers_.back())
      fail(Status::out_of_memory, "cpu_prefix_bytes: ", bytes, " bytes cannot be allocated");
  }
}

PageMover::~PageMover() {
  bool used = false;
  for (const auto& tier : tiers_) used = used || tier;
  if (used) try {
      model_.sync();
    } catch (...) {  // a device that is lost: nothing comes any more
    }
}

std::byte* PageMover::slot(int group, int32_t slot) const {
  const auto g = static_cast<size_t>(group);
  return tiers_[g].get() + static_cast<size_t>(slot) * model_.groups()[g].page_bytes;
}

void PageMover::run(StepPlan& plan, std::vector<PagePools::Freed>& freed, bool busy) {
  // The first copy waits for what the device does: then only the others tell what one takes.
  const size_t first = busy ? 1 : 0;
  int64_t begin = 0;
  for (size_t i = 0; i < plan.out.size(); ++i) {
    if (i == first) begin = monotonic_ns();
    const PageOut& p = plan.out[i];
    model_.read_page(p.group, p.page, slot(p.group, p.slot));
  }
  if (plan.out.size() > first) {
    const double each =
        static_cast<double>(monotonic_ns() - begin) / static_cast<double>(plan.out.size() - first);
    copy_page_ns_ += (each - copy_page_ns_) * (copy_page_ns_ > 0 ? 0.1 : 1.0);
  }
  for (const PagePools::Freed& f : freed) model_.poison_page(f.group, f.page);
  for (const PageIn& p : plan.in) model_.write_page(p.group, p.page, slot(p.group, p.slot));
  for (const PageCopy& p : plan.copies) model_.copy_page(p.group, p.from, p.to);
  for (const SeatCopy& s : plan.seats) model_.copy_seat(s.from, s.to);
  plan.out.clear();
  freed.clear();
  plan.in.clear();
  plan.copies.clear();
  plan.seats.clear();
}

std::vector<int64_t> host_tier_slots(const Model& model, const std::vector<int64_t>& pages,
                                     size_t bytes) {
  double all = 0;
  for (size_t g = 0; g < pages.size(); ++g)
    all += static_cast<double>(pages[g]) * static_cast<double>(model.groups()[g].page_bytes);
  std::vector<int64_t> slots;
  for (const int64_t n : pages)
    slots.push_back(all > 0 ? std::min<int64_t>(
                                  static_cast<int64_t>(static_cast<double>(n) / all *
                                                       static_cast<double>(bytes)),
                                  std::numeric_limits<int32_t>::max() / 2)
                            : 0);
  return slots;
}

}  // namespace orlop
