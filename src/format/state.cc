#include "format/state.h"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/crypto_generichash_blake2b.h>
#include <sodium/utils.h>

#include <bit>
#include <cstring>

#include "base/checked.h"

namespace orlop {
namespace {

static_assert(std::endian::native == std::endian::little, "states are written as memory has them");

constexpr char magic[8] = {'o', 'r', 'l', 'o', 'p', 'K', 'V', '\n'};
constexpr uint32_t flag_signed = 1;
constexpr size_t digest_bytes = sizeof(StateDigest);
constexpr uint32_t max_fields = 64;
constexpr uint32_t max_page_tokens = 65536;
constexpr std::string_view signed_text = "orlop state signature 1";

StateDigest sign(std::string_view key, const StateDigest& checksum) {
  StateDigest out;
  crypto_auth_hmacsha256_state s;
  crypto_auth_hmacsha256_init(&s, reinterpret_cast<const unsigned char*>(key.data()), key.size());
  crypto_auth_hmacsha256_update(&s, reinterpret_cast<const unsigned char*>(signed_text.data()),
                                signed_text.size());
  crypto_auth_hmacsha256_update(&s, checksum.data(), checksum.size());
  crypto_auth_hmacsha256_final(&s, out.data());
  sodium_memzero(&s, sizeof s);
  return out;
}

template <class T>
void put(std::string& to, T v) {
  to.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put_text(std::string& to, const std::string& s) {
  put(to, checked_cast<uint16_t>(s.size(), "state: a field"));
  to += s;
}

uint64_t bytes_of_pages(const StateHead& head, const char* what) {
  uint64_t sum = 0;
  for (const StateGroup& g : head.groups)
    sum = checked_add(sum, checked_mul<uint64_t>(head.pages() - g.first, g.page_bytes, what), what);
  return sum;
}

std::string encode(const StateHead& head, bool is_signed) {
  std::string s(magic, sizeof magic);
  put(s, state_version);
  put(s, is_signed ? flag_signed : uint32_t{0});
  put(s, static_cast<uint32_t>(head.fields.size()));
  for (const auto& [name, value] : head.fields) {
    put_text(s, name);
    put_text(s, value);
  }
  put(s, head.page_tokens);
  put(s, static_cast<uint32_t>(head.tokens.size()));
  s.append(reinterpret_cast<const char*>(head.tokens.data()), head.tokens.size() * sizeof(int32_t));
  put(s, static_cast<uint32_t>(head.groups.size()));
  for (const StateGroup& g : head.groups) {
    put(s, g.page_bytes);
    put(s, g.first);
  }
  return s;
}

// Reads forward and never past the end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const char* what) : bytes_(bytes), what_(what) {}
  std::span<const std::byte> take(uint64_t n, const char* part) {
    if (n > bytes_.size() - at_)
      fail(Status::bad_format, what_, ": ends within ", part, " (", bytes_.size(), " bytes)");
    const auto piece = bytes_.subspan(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return piece;
  }
  template <class T>
  T number(const char* part) {
    T v;
    std::memcpy(&v, take(sizeof v, part).data(), sizeof v);
    return v;
  }
  std::string text(const char* part) {
    const auto piece = take(number<uint16_t>(part), part);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  const char* what_;
  size_t at_ = 0;
};

}  // namespace

struct Hash::State {
  crypto_generichash_blake2b_state blake;
};

Hash::Hash() : state_(std::make_unique<State>()) {
  crypto_generichash_blake2b_init(&state_->blake, nullptr, 0, digest_bytes);
}
Hash::~Hash() = default;

Hash& Hash::add(std::span<const std::byte> bytes) {
  crypto_generichash_blake2b_update(
      &state_->blake, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return *this;
}

Hash& Hash::add(std::string_view text) {
  return add({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

StateDigest Hash::end() {
  StateDigest out;
  crypto_generichash_blake2b_final(&state_->blake, out.data(), out.size());
  return out;
}

std::string hex(const StateDigest& digest) {
  std::string s;
  for (const unsigned char c : digest) {
    s += "0123456789abcdef"[c >> 4];
    s += "0123456789abcdef"[c & 15];
  }
  return s;
}

StateWriter::StateWriter(const StateHead& head, std::string key, Sink sink)
    : key_(std::move(key)), sink_(std::move(sink)) {
  const std::string s = encode(head, !key_.empty());
  total_ = checked_add<uint64_t>(s.size(), bytes_of_pages(head, "state"), "state");
  put({reinterpret_cast<const std::byte*>(s.data()), s.size()});
}

StateWriter::~StateWriter() {
  sodium_memzero(key_.data(), key_.size());
}

void StateWriter::put(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  sink_(bytes);
  written_ += bytes.size();
}

void StateWriter::page(std::span<const std::byte> bytes) {
  put(bytes);
}

void StateWriter::end() {
  if (written_ != total_)
    fail(Status::internal, "state: ", written_, " bytes were written of ", total_);
  const StateDigest checksum = hash_.end();
  sink_(std::as_bytes(std::span(checksum)));
  if (key_.empty()) return;
  const StateDigest signature = sign(key_, checksum);
  sink_(std::as_bytes(std::span(signature)));
}

std::span<const std::byte> StateView::page(size_t group, uint32_t i) const {
  const StateGroup& g = head.groups[group];
  return all.subspan(static_cast<size_t>(group_at[group] + (i - g.first) * g.page_bytes),
                     static_cast<size_t>(g.page_bytes));
}

bool StateView::checksum_holds() const {
  const StateDigest now = Hash().add(covered).end();
  return sodium_memcmp(now.data(), checksum.data(), now.size()) == 0;
}

bool StateView::signature_holds(std::string_view key) const {
  if (!is_signed) return false;
  const StateDigest now = sign(key, checksum);
  return sodium_memcmp(now.data(), signature.data(), now.size()) == 0;
}

StateView parse_state(std::span<const std::byte> bytes, const char* what,
                      const StateLimits& limits) {
  StateView v;
  v.all = bytes;
  Reader in(bytes, what);
  if (std::memcmp(in.take(sizeof magic, "its first bytes").data(), magic, sizeof magic) != 0)
    fail(Status::bad_format, what, ": is no saved state");
  const auto version = in.number<uint32_t>("its version");
  if (version != state_version)
    fail(Status::unsupported, what, ": format version is ", version, ", this library's is ",
         state_version);
  const auto flags = in.number<uint32_t>("its flags");
  if (flags & ~flag_signed) fail(Status::bad_format, what, ": flags: ", flags, " are unknown");
  v.is_signed = flags & flag_signed;

  const auto fields = in.number<uint32_t>("its fields");
  if (fields > max_fields)
    fail(Status::bad_format, what, ": ", fields, " fields are more than ", max_fields);
  for (uint32_t i = 0; i < fields; ++i) {
    std::string name = in.text("a field's name");
    for (const auto& [other, value] : v.head.fields)
      if (other == name) fail(Status::bad_format, what, ": a field comes twice");
    std::string value = in.text("a field's value");
    v.head.fields.emplace_back(std::move(name), std::move(value));
  }

  v.head.page_tokens = in.number<uint32_t>("its page size");
  const auto tokens = in.number<uint32_t>("its token count");
  if (v.head.page_tokens < 1 || v.head.page_tokens > max_page_tokens)
    fail(Status::bad_format, what, ": ", v.head.page_tokens, " tokens a page are out of range");
  if (tokens < 1 || tokens % v.head.page_tokens)
    fail(Status::bad_format, what, ": ", tokens, " tokens are no whole pages of ",
         v.head.page_tokens);
  if (tokens > limits.max_tokens)
    fail(Status::bad_format, what, ": ", tokens, " tokens are more than ", limits.max_tokens);
  const auto ids = in.take(uint64_t{tokens} * sizeof(int32_t), "its tokens");
  v.head.tokens.resize(tokens);
  std::memcpy(v.head.tokens.data(), ids.data(), ids.size());

  const auto groups = in.number<uint32_t>("its groups");
  if (groups < 1 || groups > limits.max_groups)
    fail(Status::bad_format, what, ": ", groups, " cache groups are not 1 to ", limits.max_groups);
  for (uint32_t g = 0; g < groups; ++g) {
    StateGroup group;
    group.page_bytes = in.number<uint64_t>("a group");
    group.first = in.number<uint32_t>("a group");
    if (group.page_bytes < 1 || group.first >= v.head.pages())
      fail(Status::bad_format, what, ": group ", g, ": ", group.page_bytes,
           " bytes a page, first page ", group.first, " of ", v.head.pages());
    v.head.groups.push_back(group);
  }
  const uint64_t tail = digest_bytes * (v.is_signed ? 2 : 1);
  const uint64_t body = bytes_of_pages(v.head, what);
  const uint64_t want = checked_add(checked_add<uint64_t>(in.at(), body, what), tail, what);
  if (want != bytes.size())
    fail(Status::bad_format, what, ": has ", bytes.size(), " bytes, its head says ", want);
  uint64_t at = in.at();
  for (const StateGroup& g : v.head.groups) {
    v.group_at.push_back(at);
    at += (v.head.pages() - g.first) * g.page_bytes;
  }
  v.covered = bytes.first(static_cast<size_t>(at));
  std::memcpy(v.checksum.data(), bytes.data() + at, digest_bytes);
  if (v.is_signed) std::memcpy(v.signature.data(), bytes.data() + at + digest_bytes, digest_bytes);
  return v;
}

}  // namespace orlop
