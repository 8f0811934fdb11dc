// A GPU that is lost under an engine: its requests end with a typed error, whatever comes after them is refused or
// ends the same way, and the process lives. ORLOP_CUDA_LIBRARY is broken_cuda, ORLOP_TEST_REAL_CUDA the plugin.
//   test_cuda_lost MODEL
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "orlop/orlop.hpp"

namespace {

int failures = 0;
void check(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  failures += !holds;
}

orlop::Params request(std::uint32_t tokens) {
  orlop::Params p;
  p.tokens = {1, 2, 3, 4, 5};
  p.max_tokens = tokens;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  return p;
}

// Reads a request to its end, or to its error.
orlop::Error end_of(const orlop::Engine& engine, std::uint32_t tokens) {
  auto made = engine.generate(request(tokens));
  if (!made) return made.error();
  return made->read().error();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string config = "{\"model\":" + orlop::json_quote(argv[1]) + ",\"device\":\"cuda\",\"kv_bytes\":8000000,\"max_context\":128}";
  auto made = orlop::Engine::create(config);
  if (!made) {
    std::printf("SKIP %s\n", made.error().message.c_str());
    return 77;
  }
  void* plugin = dlopen(std::getenv("ORLOP_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  const auto break_it = plugin ? reinterpret_cast<void (*)()>(dlsym(plugin, "orlop_test_break")) : nullptr;
  if (!break_it) return std::puts("ORLOP_CUDA_LIBRARY is not broken_cuda"), 2;
  {
    const orlop::Engine engine = std::move(*made);
    auto second = orlop::Engine::create(config);  // shares the GPU, and its fate
    check(second.ok(), "two engines on one GPU");
    check(end_of(engine, 20).code == ORLOP_OK, "a request before");
    check(second.ok() && end_of(*second, 20).code == ORLOP_OK, "a request of the other engine before");

    break_it();
    auto running = engine.generate(request(100)), beside = engine.generate(request(100));
    check(running.ok() && beside.ok(), "two requests are taken");
    if (running && beside) {
      const orlop::Error first = running->read().error(), other = beside->read().error();
      std::printf("   %s\n", first.message.c_str());
      check(first.code == ORLOP_E_INTERNAL && first.message.find("cuda") != std::string::npos, "the request ends with the GPU's error");
      check(other.code == ORLOP_E_INTERNAL, "so does the one beside it");
    }
    for (int i = 0; i < 20; ++i)
      if (end_of(engine, 5).code != ORLOP_E_INTERNAL) check(false, "later requests end the same way");
    if (second) {
      const orlop::Error e = end_of(*second, 5);
      std::printf("   %s\n", e.message.c_str());
      check(e.code == ORLOP_E_INTERNAL, "requests of the other engine end with an error");
    }
    const auto stats = engine.stats();
    check(stats.ok() && stats->pages_used == 0, "no page is lost");
  }
  auto again = orlop::Engine::create(config);
  if (again) {
    check(end_of(*again, 20).code == ORLOP_OK, "a new engine works");
  } else {
    std::printf("   %s\n", again.error().message.c_str());
    check(again.error().code == ORLOP_E_INTERNAL || again.error().code == ORLOP_E_UNSUPPORTED, "a new engine is refused with an error");
  }
  const auto cpu = orlop::Engine::create("{\"model\":" + orlop::json_quote(argv[1]) + ",\"kv_bytes\":8000000,\"max_context\":128}");
  check(cpu.ok() && end_of(*cpu, 20).code == ORLOP_OK, "the processor still works");
  std::printf("%s\n", failures ? "FAILED" : "passed");
  return failures != 0;
}
