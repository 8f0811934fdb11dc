// generate.cc MODEL QUESTION: an answer, streamed, in C++17.
// c++ -std=c++17 generate.cc $(pkg-config --cflags --libs orlop) -o generate
#include <iostream>
#include <orlop/orlop.hpp>

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  auto engine = orlop::Engine::open(argv[1]).value();
  auto params = orlop::Params::chat(argv[2]);
  params.max_tokens = 256;
  params.temperature = 0;  // the most likely answer, the same each time
  auto request = engine.generate(params).value();
  for (const orlop::Output& out : request) std::cout << out.text() << std::flush;
  std::cout << '\n';
} catch (const orlop::Exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
