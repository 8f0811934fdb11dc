// The smallest test harness: CHECK counts, test_main prints one closing line and sets the exit code.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace orlop::test {

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int n = 0;
  return n;
}
struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

template <class F>
bool throws(Status status, const char* words, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.status() == status && e.text().find(words) != std::string::npos) return true;
    std::fprintf(stderr, "  got status %d: %s\n", static_cast<int>(e.status()), e.text().c_str());
    return false;
  }
  std::fprintf(stderr, "  nothing was thrown\n");
  return false;
}

// ORLOP_TEST_SHORT: fewer rounds and shapes of the same kinds, under sanitizers and emulation.
inline bool is_short() {
  static const bool answer = std::getenv("ORLOP_TEST_SHORT") != nullptr;
  return answer;
}

// Runs every case (or those whose name contains argv[1]).
inline int test_main(int argc, char** argv) {
  int passed = 0, failed = 0;
  for (const Case& c : cases()) {
    if (argc > 1 && std::string(c.name).find(argv[1]) == std::string::npos) continue;
    const int before = failures();
    try {
      c.run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: exception: %s\n", c.name, e.what());
      ++failures();
    }
    const bool ok = failures() == before;
    ok ? ++passed : ++failed;
    if (!ok) std::fprintf(stderr, "FAILED %s\n", c.name);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed || passed == 0;
}

}  // namespace orlop::test

#define TEST(name)                                                   \
  static void test_##name();                                         \
  static ::orlop::test::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition);     \
      ++::orlop::test::failures();                                                    \
    }                                                                                 \
  } while (0)
#define CHECK_THROWS(status, words, ...) \
  CHECK(::orlop::test::throws(::orlop::Status::status, words, [&] { __VA_ARGS__; }))
