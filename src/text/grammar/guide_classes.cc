#include "text/grammar/guide_classes.h"

#include <algorithm>

#include "text/piece_table.h"

namespace orlop {
namespace {

constexpr uint32_t none = UINT32_MAX;

// The ranges that reach into [first, last].
std::span<const CharRange> inside(std::span<const CharRange> ranges, uint32_t first,
                                  uint32_t last) {
  const auto begin = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const CharRange& r) { return r.last < first; });
  const auto end = std::partition_point(begin, ranges.end(),
                                        [&](const CharRange& r) { return r.first <= last; });
  return {begin, end};
}

void append(std::vector<Program::Edge>& edges, uint8_t byte, uint32_t target) {
  if (!edges.empty() && edges.back().target == target && edges.back().high + 1 == byte)
    edges.back().high = byte;
  else
    edges.push_back({byte, byte, target});
}

}  // namespace

uint32_t ClassBuilder::intern(const std::vector<Program::Edge>& edges) {
  uint64_t hash = hash_seed();
  for (const Program::Edge& e : edges)
    hash = hash_mix(hash ^ (uint64_t{e.target} << 16 | uint64_t{e.low} << 8 | e.high));
  const auto same = [](const Program::Edge& a, const Program::Edge& b) {
    return a.low == b.low && a.high == b.high && a.target == b.target;
  };
  const auto [begin, end] = known_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Program::Node& n = program_.nodes[it->second];
    if (n.count == edges.size() &&
        std::equal(edges.begin(), edges.end(), program_.edges.begin() + n.begin, same))
      return it->second;
  }
  const auto id = static_cast<uint32_t>(program_.nodes.size());
  program_.nodes.push_back({.op = Program::Op::bytes,
                            .begin = static_cast<uint32_t>(program_.edges.size()),
                            .count = static_cast<uint32_t>(edges.size())});
  program_.edges.insert(program_.edges.end(), edges.begin(), edges.end());
  known_.emplace(hash, id);
  return id;
}

uint32_t ClassBuilder::block(std::span<const CharRange> ranges, uint32_t base, int bytes) {
  const uint32_t size = 1u << (6 * bytes);
  ranges = inside(ranges, base, base + size - 1);
  if (ranges.empty()) return none;
  if (bytes == 0) return Program::char_end;
  std::vector<Program::Edge> edges;
  const uint32_t part = size >> 6;
  const bool whole =
      ranges.size() == 1 && ranges[0].first <= base && ranges[0].last >= base + size - 1;
  if (whole) {
    edges.push_back({0x80, 0xbf, block(ranges, base, bytes - 1)});
    return intern(edges);
  }
  steps_ += 64;
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t target = block(ranges, base + i * part, bytes - 1);
    if (target != none) append(edges, static_cast<uint8_t>(0x80 + i), target);
  }
  return intern(edges);
}

uint32_t ClassBuilder::add(std::span<const CharRange> ranges) {
  Program::Class c;
  c.ranges.assign(ranges.begin(), ranges.end());
  for (const CharRange& r : ranges)
    for (uint32_t code = r.first; code <= r.last && code < 0x80; ++code)
      c.ascii[code >> 6] |= uint64_t{1} << (code & 63);
  std::vector<Program::Edge> leads;
  const auto add_leads = [&](uint32_t first, uint32_t last, uint32_t high, int bytes,
                             uint32_t from) {
    for (uint32_t lead = first; lead <= last; ++lead) {
      const uint32_t base = (lead - high) << (6 * bytes);
      const uint32_t end = base + (1u << (6 * bytes)) - 1;
      // Below `from` are overlong forms; past 10ffff the ranges end by themselves.
      auto part = inside(ranges, std::max(base, from), end);
      if (part.empty()) continue;
      std::vector<CharRange> cut(part.begin(), part.end());
      cut.front().first = std::max(cut.front().first, from);
      const uint32_t target = block(cut, base, bytes);
      if (target != none) append(leads, static_cast<uint8_t>(lead), target);
    }
  };
  add_leads(0xc2, 0xdf, 0xc0, 1, 0x80);
  add_leads(0xe0, 0xef, 0xe0, 2, 0x800);
  add_leads(0xf0, 0xf4, 0xf0, 3, 0x10000);
  steps_ += 64 + ranges.size();
  c.begin = static_cast<uint32_t>(program_.edges.size());
  c.count = static_cast<uint32_t>(leads.size());
  program_.edges.insert(program_.edges.end(), leads.begin(), leads.end());
  program_.classes.push_back(std::move(c));
  return static_cast<uint32_t>(program_.classes.size() - 1);
}

}  // namespace orlop
