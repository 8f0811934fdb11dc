// A saved state: the keys and values of a computed prefix, as one run of bytes. The container knows
// nothing of what the bytes mean; who wrote them stands in named fields, and a checksum and a
// signature stand at the end.
//
// Layout, little endian, without padding:
//   magic [8], u32 version, u32 flags (1: signed)
//   u32 fields, each: u16 + name, u16 + value
//   u32 page_tokens, u32 tokens (a multiple of page_tokens), i32 [tokens]
//   u32 groups, each: u64 page_bytes, u32 first page stored (those before it lie behind a window)
//   pages: group after group, each [tokens / page_tokens - first][page_bytes]
//   checksum [32]: BLAKE2b-256 (RFC 7693) of everything before it
//   signature [32], if signed: HMAC-SHA-256 (RFC 2104) of a fixed text and the checksum
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orlop {

constexpr uint32_t state_version = 1;
constexpr size_t min_state_key = 16, max_state_key = 1024;
using StateDigest = std::array<unsigned char, 32>;
using StateFields = std::vector<std::pair<std::string, std::string>>;

struct StateGroup {
  uint64_t page_bytes = 0;
  uint32_t first = 0;  // the first page stored
};

// Everything before the pages.
struct StateHead {
  StateFields fields;
  uint32_t page_tokens = 0;
  std::vector<int32_t> tokens;  // [pages * page_tokens]
  std::vector<StateGroup> groups;
  uint32_t pages() const { return static_cast<uint32_t>(tokens.size()) / page_tokens; }
};

// A running BLAKE2b-256.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  Hash& add(std::span<const std::byte> bytes);
  Hash& add(std::string_view text);
  StateDigest end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string hex(const StateDigest& digest);

// Writes a state piece by piece: head, then every page in order, then end().
class StateWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  // key: empty, or what signs.
  StateWriter(const StateHead& head, std::string key, Sink sink);
  ~StateWriter();
  uint64_t total_bytes() const { return total_; }
  void page(std::span<const std::byte> bytes);
  void end();

 private:
  void put(std::span<const std::byte> bytes);
  std::string key_;
  Sink sink_;
  Hash hash_;
  uint64_t written_ = 0, total_ = 0;
};

// A parsed state; spans point into the bytes it was parsed from.
struct StateView {
  StateHead head;
  // page(g, i): page i of group g, i in [head.groups[g].first, head.pages()).
  std::span<const std::byte> page(size_t group, uint32_t i) const;
  std::span<const std::byte> covered;  // what the checksum covers
  std::vector<uint64_t> group_at;      // where each group's pages begin
  std::span<const std::byte> all;
  bool is_signed = false;
  StateDigest checksum{}, signature{};

  bool checksum_holds() const;
  bool signature_holds(std::string_view key) const;  // in constant time
};

struct StateLimits {
  uint32_t max_tokens = uint32_t{1} << 24;
  uint32_t max_groups = 16;
};
// Error(bad_format) starts with `what`: the structure alone, no checksum. Never reads outside
// `bytes`, and takes memory for the tokens only.
StateView parse_state(std::span<const std::byte> bytes, const char* what,
                      const StateLimits& limits = {});

}  // namespace orlop
