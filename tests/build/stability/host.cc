// host.cc TINY_MODEL: a C++ program with a standard library of its own: exceptions, streams, locales and
// threads here while the library uses its own inside.
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "orlop/orlop.h"

namespace {

std::vector<std::int32_t> answer(orlop_engine* engine, std::int32_t first) {
  const std::int32_t prompt[] = {first, 17, 42, 99};
  orlop_generate_params p;
  orlop_generate_params_init(&p, sizeof p);
  p.tokens = prompt;
  p.n_tokens = 4;
  p.max_tokens = 16;
  p.temperature = 0;
  p.flags = ORLOP_GENERATE_IGNORE_EOS;
  orlop_request* request = nullptr;
  orlop_error err{};
  err.struct_size = sizeof err;
  if (orlop_async_generate(engine, &p, &request, &err) != ORLOP_OK) throw std::runtime_error(err.message);
  std::vector<std::int32_t> tokens;
  orlop_output out{};
  out.struct_size = sizeof out;
  while (orlop_get(request, -1, &out, nullptr) == ORLOP_OK) tokens.insert(tokens.end(), out.tokens, out.tokens + out.n_tokens);
  orlop_request_release(request);
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int failures = 0;
  std::ostringstream json;
  json << "{\"model\": \"" << argv[1] << "\", \"threads\": 2}";
  orlop_error err{};
  err.struct_size = sizeof err;
  orlop_engine* engine = nullptr;
  // An exception inside the library, and one here.
  if (orlop_engine_create("{", 1, &engine, &err) != ORLOP_E_INVALID_ARGUMENT || !err.message[0]) ++failures;
  try {
    answer(engine, 1);
    ++failures;
  } catch (const std::runtime_error& e) {
    if (std::string(e.what()).find("NULL") == std::string::npos) ++failures;
  }
  if (orlop_engine_create(json.str().data(), json.str().size(), &engine, &err) != ORLOP_OK) {
    std::cerr << err.message << "\n";
    return 1;
  }
  std::vector<std::vector<std::int32_t>> got(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { got[static_cast<std::size_t>(i)] = answer(engine, i % 4); });
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < 4; ++i)
    if (got[i].size() != 16 || got[i] != got[i + 4]) ++failures;
  orlop_engine_release(engine);
  std::cout << failures << " failures\n";
  return failures != 0;
}
