#include "format/state.h"

#include <cstring>
#include <random>

#include "../check.h"
#include "builders.h"

using namespace orlop;
using namespace orlop::test;

namespace {

const std::string key = "sixteen bytes or more";

StateHead head_of_two_groups() {
  StateHead h;
  h.fields = {{"model", "0123"}, {"kv_dtype", "bf16"}, {"empty", ""}};
  h.page_tokens = 4;
  for (int32_t i = 0; i < 12; ++i) h.tokens.push_back(i * 7);
  h.groups = {{8, 0}, {5, 2}};
  return h;
}

std::string page_of(size_t group, uint32_t i, size_t bytes) {
  std::string s;
  for (size_t k = 0; k < bytes; ++k) s += static_cast<char>(group * 100 + i * 16 + k);
  return s;
}

std::string written(const StateHead& h, const std::string& with_key) {
  std::string out;
  StateWriter w(h, with_key, [&](std::span<const std::byte> b) {
    out.append(reinterpret_cast<const char*>(b.data()), b.size());
  });
  for (size_t g = 0; g < h.groups.size(); ++g)
    for (uint32_t i = h.groups[g].first; i < h.pages(); ++i)
      w.page(as_span(page_of(g, i, h.groups[g].page_bytes)));
  w.end();
  return out;
}

StateView parse(const std::string& s) {
  return parse_state(as_span(s), "s");
}

}  // namespace

TEST(round_trip) {
  for (const std::string& k : {std::string(), key}) {
    const StateHead h = head_of_two_groups();
    const std::string s = written(h, k);
    const StateView v = parse(s);
    CHECK(v.head.fields == h.fields && v.head.tokens == h.tokens && v.head.page_tokens == 4);
    CHECK(v.head.groups.size() == 2 && v.head.groups[1].first == 2);
    for (size_t g = 0; g < 2; ++g)
      for (uint32_t i = h.groups[g].first; i < 3; ++i) {
        const auto p = v.page(g, i);
        const std::string want = page_of(g, i, h.groups[g].page_bytes);
        CHECK(p.size() == want.size() && std::memcmp(p.data(), want.data(), want.size()) == 0);
      }
    CHECK(v.checksum_holds());
    CHECK(v.is_signed == !k.empty());
    CHECK(v.signature_holds(key) == !k.empty());
    CHECK(!v.signature_holds("another key of enough bytes"));
  }
}

// BLAKE2b-256 of the empty message and of "abc"; HMAC-SHA-256 is checked through the file, with
// values of Python's hashlib and hmac.
TEST(digests_are_the_published_ones) {
  CHECK(hex(Hash().end()) == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  CHECK(hex(Hash().add("a").add("bc").end()) ==
        "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  const StateView v = parse(written(head_of_two_groups(), key));
  CHECK(hex(v.checksum) == "92f825af3d1f709440aa2eb566c50171b0059a62d69a79bb2e7dc31522165d75");
  CHECK(hex(v.signature) == "283f4807f544f9edc428cd3cc63e8874be384533e6bb1417afe9d6dbeefc8a76");
}

TEST(every_truncation_is_refused) {
  const std::string s = written(head_of_two_groups(), key);
  for (size_t n = 0; n < s.size(); ++n) CHECK_THROWS(bad_format, "s: ", parse(s.substr(0, n)));
  CHECK_THROWS(bad_format, "s: has", parse(s + "x"));
}

// A flipped bit is refused by the structure, the checksum or the signature.
TEST(every_flipped_bit_is_seen) {
  const std::string s = written(head_of_two_groups(), key);
  for (size_t at = 0; at < s.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string t = s;
      t[at] = static_cast<char>(t[at] ^ (1 << bit));
      bool seen = false;
      try {
        const StateView v = parse(t);
        seen = !v.checksum_holds() || !v.signature_holds(key);
      } catch (const Error& e) {
        seen = e.status() == Status::bad_format || e.status() == Status::unsupported;
      }
      CHECK(seen);
    }
}

TEST(lies_are_named) {
  const StateHead good = head_of_two_groups();
  const auto refused = [&](const char* words, auto change) {
    StateHead h = good;
    change(h);
    std::string s;
    // The writer counts bytes, not sense: end() is left out where pages are.
    StateWriter w(h, "", [&](std::span<const std::byte> b) {
      s.append(reinterpret_cast<const char*>(b.data()), b.size());
    });
    CHECK_THROWS(bad_format, words, parse(s + std::string(32, '\0')));
  };
  refused("whole pages", [](StateHead& h) { h.tokens.pop_back(); });
  refused("twice", [](StateHead& h) { h.fields.push_back({"model", "x"}); });
  refused("fields are more", [](StateHead& h) {
    for (int i = 0; i < 100; ++i) h.fields.push_back({std::to_string(i), ""});
  });
  refused("cache groups", [](StateHead& h) { h.groups.clear(); });
  refused("0 bytes a page", [](StateHead& h) { h.groups[0].page_bytes = 0; });
  refused("first page 3 of 3", [](StateHead& h) { h.groups[1].first = 3; });
  refused("its head says", [](StateHead&) {});  // no pages at all
  std::string s = written(good, "");
  s[12] = 2;
  CHECK_THROWS(bad_format, "flags", parse(s));
  s = written(good, "");
  s[8] = 9;
  CHECK_THROWS(unsupported, "version is 9", parse(s));
}

TEST(huge_numbers_do_not_overflow) {
  StateHead h = head_of_two_groups();
  std::string s = written(h, "");
  // The first group's page_bytes: after magic, version, flags, fields, page size, tokens.
  size_t at = 8 + 4 + 4 + 4;
  for (const auto& [name, value] : h.fields) at += 4 + name.size() + value.size();
  at += 4 + 4 + 12 * 4 + 4;
  uint64_t now;
  std::memcpy(&now, s.data() + at, 8);
  CHECK(now == 8);
  for (const uint64_t lie : {UINT64_MAX, UINT64_MAX / 3, UINT64_MAX - 14, uint64_t{1} << 62}) {
    std::memcpy(s.data() + at, &lie, 8);
    CHECK_THROWS(bad_format, "s: ", parse(s));
  }
}

TEST(random_bytes_are_refused) {
  std::mt19937 random(7);
  const std::string good = written(head_of_two_groups(), "");
  for (int i = 0; i < 3000; ++i) {
    std::string s = good.substr(0, 16);
    const size_t n = random() % 300;
    for (size_t k = 0; k < n; ++k) s += static_cast<char>(random());
    CHECK_THROWS(bad_format, "s: ", parse(s));
  }
}

int main(int c, char** v) {
  return test_main(c, v);
}
