// Decode steps of the CUDA backend in fast mode, where attention does kv_store's work as well: the same bits, of outputs
// and pages, as one after the other, and the formula in double. Without a GPU it is skipped, saying why.
#include "cuda_attention_rig.h"

namespace orlop::test {
namespace {

// Rows as kv_store leaves them, by the reference.
Rows stored(const Shape& s, const Rows& qkv, const Extras& x) {
  const int n = static_cast<int>(qkv.size()) / s.row();
  const KvDesc kv{s.type, s.kv_heads, s.dim, s.page_tokens};
  Rows rows = qkv;
  std::vector<unsigned char> pages(static_cast<size_t>(cpu::KvLayout(kv).page * ((n + s.page_tokens - 1) / s.page_tokens)));
  std::vector<int32_t> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  KvStoreArgs a{};
  a.kv = kv;
  a.heads = s.heads;
  a.qkv = rows.data();
  a.qkv_stride = s.row();
  a.rows = n;
  a.slots = slots.data();
  a.cos = x.cos.data();
  a.sin = x.sin.data();
  a.half = x.half;
  a.q_norm = x.q_norm.empty() ? nullptr : x.q_norm.data();
  a.k_norm = x.k_norm.empty() ? nullptr : x.k_norm.data();
  a.eps = x.eps;
  a.pages = pages.data();
  cpu::ref::kv_store(a, 0, n);
  return rows;
}

// Prompts, then steps of one row each; some sequences begin with such a step.
std::vector<Step> prompts_and_steps(const Shape& s, const std::vector<Rows>& qkv, Random& random) {
  std::vector<int> left;
  std::vector<Step> steps(1);
  for (size_t i = 0; i < qkv.size(); ++i) {
    const int n = static_cast<int>(qkv[i].size()) / s.row(), own = n < 8 ? n : random.between(3, 6);
    left.push_back(own);
    if (n > own) steps[0].push_back({static_cast<int>(i), n - own});
  }
  while (std::accumulate(left.begin(), left.end(), 0) > 0) {
    Step step;
    for (size_t i = 0; i < left.size(); ++i)
      if (left[i] > 0 && random.below(4)) step.push_back({static_cast<int>(i), 1}), --left[i];
    if (!step.empty()) steps.push_back(step);
  }
  if (steps[0].empty()) steps.erase(steps.begin());
  return steps;
}

// Sequences whose rows are cut out of the same million numbers.
std::vector<Rows> some_sequences(const Shape& s, const std::vector<int>& lengths, Random& random) {
  static const Rows numbers = Random(10).normals((1 << 20) + 7);
  std::vector<Rows> all;
  for (const int n : lengths) {
    Rows rows(static_cast<size_t>(n * s.row()));
    for (size_t at = 0; at < rows.size();) {
      const auto from = static_cast<size_t>(random.below(1 << 19)), some = std::min<size_t>(rows.size() - at, 1 << 19);
      std::copy_n(numbers.begin() + static_cast<long>(from), some, rows.begin() + static_cast<long>(at));
      at += some;
    }
    all.push_back(std::move(rows));
  }
  return all;
}

void check_at_once(const Shape& s, const std::vector<Rows>& qkv, const Extras& extras, bool numbers, Random& random) {
  const std::vector<Step> steps = prompts_and_steps(s, qkv, random);
  std::vector<unsigned char> pages, want_pages;
  int at_once = 0, apart = 0;
  const auto got = feed_gpu(gpu(false), s, qkv, steps, 3, {.extras = &extras, .at_once = &at_once}, &pages);
  const auto want = feed_gpu(gpu(false), s, qkv, steps, 3, {.extras = &extras, .apart = true, .at_once = &apart}, &want_pages);
  // Of more rows than 32 attention stores none, unless there are so many that blocks take turns, on Hopper: two heads of
  // rows for each multiprocessor (attention.cu, attention_decode.h).
  static const std::string words_of_gpu = make_backend({.device = "cuda", .threads = 1, .deterministic = false})->describe();
  const size_t behind = words_of_gpu.find(" multiprocessors");
  CHECK(behind != std::string::npos);
  const auto places = 2 * static_cast<size_t>(std::stoi(words_of_gpu.substr(words_of_gpu.rfind(' ', behind - 1) + 1)));
  const bool by_turns = words_of_gpu.find("capability 9") != std::string::npos && (s.dim == 64 || s.dim == 128) && s.heads / s.kv_heads <= 8 && s.page_tokens % 16 == 0;
  int expected = 0;
  for (const Step& step : steps) {
    size_t rows = 0;
    for (const Part& part : step) rows += static_cast<size_t>(part.rows);
    expected += rows == step.size() && (rows <= 32 || (by_turns && rows * static_cast<size_t>(s.kv_heads) >= places));
  }
  if (extras.half || !extras.q_norm.empty()) CHECK(at_once == expected && apart == 0);
  bool same = pages == want_pages;
  for (size_t i = 0; i < qkv.size(); ++i) same &= same_bits(got[i], want[i]);
  if (!same) std::printf("  %s half %d, %zu sequences: at once and apart differ\n", words(s).c_str(), extras.half, qkv.size());
  CHECK(same);
  for (size_t i = 0; numbers && i < std::min<size_t>(qkv.size(), 3); ++i) {
    const int n = static_cast<int>(qkv[i].size()) / s.row(), from = std::max(0, n - 3);
    CHECK(close(s, got[i], formula(s, stored(s, qkv[i], extras), false, from), from, "at once"));
  }
}

// A step of one row a sequence in fast mode: attention does kv_store's work too, with the same bits of outputs and pages
// as one after the other.
TEST(cuda_steps_of_one_row_are_stored_as_they_attend) {
  Random random(8);
  const int dims[] = {64, 80, 96, 128, 256}, page_sizes[] = {8, 16, 32, 48, 64, 256}, groups[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
  for (int round = 0; round < (is_short() ? 40 : 80); ++round) {
    // A few short contexts; more of them than multiprocessors; few long ones, which are clusters'; some, which are split.
    const int kind = round / 10 % 4;
    Shape s{};
    s.dim = dims[round % 5];
    s.type = round / 5 % 2 ? KvType::f16 : KvType::bf16;
    s.kv_heads = kind % 2 ? 4 : random.between(1, kind ? 2 : 3);
    s.heads = s.kv_heads * groups[random.below(kind == 0 ? 9 : 5)];
    s.page_tokens = page_sizes[random.below(6)];
    s.window = random.below(3) ? 0 : kind >= 2 ? random.between(300, 900) : random.between(1, 120);
    std::vector<int> lengths;
    if (kind == 0) lengths = {random.between(1, 7), random.between(150, 500), random.between(20, 200)};
    if (kind == 1)
      for (int i = 0; i < 40; ++i) lengths.push_back(i == 7 ? 150 : random.between(1, 60));
    if (kind == 2) lengths = {random.between(400, 2000), 9, random.between(257, 600)};
    if (kind == 3)
      for (int i = 0; i < 20; ++i) lengths.push_back(i == 3 ? 1000 : i == 9 ? 650 : random.between(1, 60));
    const int halves[] = {s.dim / 2, s.dim / 4, s.dim / 2 - 3, 0};
    const int longest = *std::max_element(lengths.begin(), lengths.end());
    const Extras extras = random_extras(s, halves[random.below(4)], random.below(2), longest, random);
    std::vector<Rows> qkv = some_sequences(s, lengths, random);
    const bool numbers = round % 7 != 6;
    if (!numbers) {
      const float kinds[] = {nan, infinity, -infinity, 3e38f};
      for (float& x : qkv[1])
        if (random.below(300) == 0) x = kinds[random.below(4)];
    }
    check_at_once(s, qkv, extras, numbers, random);
  }
  // So many sequences that a block walks all of its chunks.
  Shape s{12, 12, 80, 16, KvType::bf16, 16};
  const std::vector<int> lengths(500, 67);
  const std::vector<Rows> qkv = some_sequences(s, lengths, random);
  const Extras extras = random_extras(s, 40, true, 70, random);
  check_at_once(s, qkv, extras, true, random);
}

// Of so many sequences that blocks take one after another; some have hostile values, which reach nobody else.
TEST(cuda_many_sequences_by_turns) {
  Random random(11);
  const int page_sizes[] = {16, 32, 48, 64, 256};
  for (int round = 0; round < (is_short() ? 6 : 16); ++round) {
    Shape s{};
    s.dim = round % 2 ? 64 : 128;
    s.type = round / 2 % 2 ? KvType::f16 : KvType::bf16;
    s.kv_heads = round % 3 ? 8 : 4;
    s.heads = s.kv_heads * random.between(1, 8);
    s.page_tokens = page_sizes[random.below(5)];
    s.window = random.below(3) ? 0 : random.between(1, 120);
    std::vector<int> lengths;
    for (int i = 0; i < 1000 / s.kv_heads; ++i) lengths.push_back(i % 60 == 7 ? random.between(200, 700) : i % 3 ? random.between(1, 20) : random.between(9, 80));
    const int halves[] = {s.dim / 2, s.dim / 4, s.dim / 2 - 3};
    const Extras extras = random_extras(s, halves[random.below(3)], random.below(2), *std::max_element(lengths.begin(), lengths.end()), random);
    std::vector<Rows> qkv = some_sequences(s, lengths, random);
    const float kinds[] = {nan, infinity, -infinity, 3e38f};
    for (size_t i = 5; i < qkv.size(); i += 10)
      for (float& x : qkv[i])
        if (random.below(300) == 0) x = kinds[random.below(4)];
    check_at_once(s, qkv, extras, true, random);
  }
}

// What attention does not attend to is stored by itself.
TEST(cuda_a_store_of_other_rows_stays) {
  Random random(9);
  const Exec& e = gpu(false);
  const Shape s{4, 2, 64, 16, KvType::bf16, 0};
  const KvDesc kv{s.type, s.kv_heads, s.dim, s.page_tokens};
  const Extras x = random_extras(s, 32, false, 1, random);
  const Rows rows = random.normals(static_cast<size_t>(s.row()));
  const std::vector<AttentionSeq> seqs = {{0, 1, 0, 0, 0}};
  const std::vector<int32_t> zero = {0};
  const size_t page = e.kernels->kv_page_bytes(kv);
  const On dx(e, rows), others(e, rows), dc(e, x.cos), ds(e, x.sin), dseqs(e, seqs), dz(e, zero), weight(e, Rows(64, 1.0f));
  const On out(e, 4 * 256, 0xff), work(e, e.kernels->attention_workspace(kv, s.heads, 1, 1), 0xff), normed(e, 4 * 64, 0xff);
  std::vector<std::vector<unsigned char>> pages;
  for (int way = 0; way < 4; ++way) {  // the store alone; other rows, other pages; something between
    const On own(e, page, 0), other_pages(e, page, 0);
    dx.put(rows);
    KvStoreArgs a{};
    a.kv = kv;
    a.heads = s.heads;
    a.qkv = dx.as<float>();
    a.qkv_stride = s.row();
    a.rows = a.seq_count = 1;
    a.slots = dz.as<int32_t>();
    a.cos = dc.as<float>();
    a.sin = ds.as<float>();
    a.half = x.half;
    a.pages = own.as<void>();
    a.seqs = dseqs.as<AttentionSeq>();
    AttentionArgs at{};
    at.kv = kv;
    at.heads = s.heads;
    at.q = way == 1 ? others.as<float>() : dx.as<float>();
    at.q_stride = s.row();
    at.out = out.as<float>();
    at.out_stride = 256;
    at.seqs = a.seqs;
    at.seq_count = at.rows = at.max_context = 1;
    at.page_table = dz.as<int32_t>();
    at.pages = way == 2 ? other_pages.as<void>() : own.as<void>();
    at.scale = 0.125f;
    at.workspace = work.as<void>();
    e.kernels->kv_store(e, a);
    if (way == 3) e.kernels->norm(e, {others.as<float>(), s.row(), weight.as<float>(), 1e-5f, normed.as<float>(), 64, 1, 64});
    if (way) e.kernels->attention(e, at);
    CHECK(!same_bits(dx.read<float>(), rows));
    pages.push_back(own.read<unsigned char>());
    CHECK(pages[static_cast<size_t>(way)] == pages[0]);
  }
  CHECK(pages[0] != std::vector<unsigned char>(page));
}

}  // namespace
}  // namespace orlop::test

int main(int count, char** values) { return orlop::test::attention_test_main(count, values); }
