// How weights are shared out to the sides of a split model, before they are loaded: by their matrices.
#include "api/kv_plan.h"

#include "../check.h"

namespace orlop::api {
namespace {

// A Llama of 8B: 32 layers of 218,103,808 elements, 525,336,576 of the embedding and as many of the head.
Config llama() {
  Config c;
  c.layers = 32, c.dim = 4096, c.heads = 32, c.kv_heads = 8, c.head_dim = 128, c.ffn_dim = 14336, c.vocab = 128256;
  return c;
}
constexpr uint64_t layer = 218103808, words = 525336576;

std::vector<uint64_t> shares(const Config& c, int32_t above, uint64_t weights) {
  std::vector<KvSide> sides(2);
  sides[0].part.end = sides[1].part.begin = c.layers - above;
  sides[1].part.end = c.layers;
  return {weights_of_side(c, sides, 0, weights), weights_of_side(c, sides, 1, weights)};
}

bool near(uint64_t a, uint64_t b) { return (a > b ? a - b : b - a) <= 1000; }

TEST(a_side_has_its_layers_and_its_matrix_of_the_vocabulary) {
  Config c = llama();
  const uint64_t all = 2 * (32 * layer + 2 * words);  // bytes of bf16
  for (const int32_t above : {0, 1, 22, 23, 32}) {
    const std::vector<uint64_t> s = shares(c, above, all);
    CHECK(near(s[0], 2 * ((32 - static_cast<uint64_t>(above)) * layer + words)));
    CHECK(near(s[1], 2 * (static_cast<uint64_t>(above) * layer + words)));
  }
  c.tied_embeddings = true;  // both have it
  const std::vector<uint64_t> s = shares(c, 16, 2 * (32 * layer + words));
  CHECK(near(s[0], 2 * (16 * layer + words)) && near(s[1], s[0]));
}

TEST(one_side_has_all) {
  Config c = llama();
  c.tied_embeddings = true;
  std::vector<KvSide> sides(1);
  sides[0].part.end = 32;
  CHECK(weights_of_side(c, sides, 0, 12345) == 12345);
}

}  // namespace
}  // namespace orlop::api

int main(int count, char** values) { return orlop::test::test_main(count, values); }
