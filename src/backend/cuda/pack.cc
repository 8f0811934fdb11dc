#include "backend/cuda/pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/quant_rows.h"
#include "ops/format.h"

namespace orlop::cuda {
namespace {

// One row on its way: codes as integers or floats, then as the layout has them.
struct Row {
  std::vector<uint8_t> raw;    // QuantRows' codes
  std::vector<float> values;   // float types, and e4m3
  std::vector<int32_t> codes;  // before the zero point is taken off
  std::vector<float> scale, min;
};

void read_block_row(FileType type, const unsigned char* from, const PartLayout& l, Row& row) {
  const FormatInfo& f = format_info(type);
  QuantGroup q;
  for (int64_t g = 0; g < l.k / 32; ++g) {
    unpack_group(type, from, g, q);
    const float d = f16_to_f32(q.d), m = f16_to_f32(q.m);
    for (int i = 0; i < 32; ++i)
      row.codes[static_cast<size_t>(32 * g + i)] = f.codebook ? iq4_nl_values[q.code[i]] : q.code[i];
    for (int64_t h = 0; h < 32 / l.group; ++h) {
      const auto at = static_cast<size_t>(32 / l.group * g + h);
      row.scale[at] = f.sub_scales ? d * static_cast<float>(q.scale[h]) : d;
      if (l.has_min) row.min[at] = f.sub_scales ? -(m * static_cast<float>(q.min[h])) : m;
    }
  }
}

void read_row(const LinearDesc& d, const LinearSource& s, int part, int64_t r, const PartLayout& l, Row& row) {
  const FileType type = d.type[part];
  const int64_t file_row = s.row_map[part] ? s.row_map[part][r] : r;
  const auto k = static_cast<size_t>(l.k);
  if (has_groups(type)) {
    s.quant[part]->row(file_row, row.raw.data(), row.scale.data(), row.min.data());
    for (size_t i = 0; i < k; ++i) {
      row.codes[i] = row.raw[i];
      if (type == FileType::f8) row.values[i] = e4m3_to_f32(row.raw[i]);
    }
    if (type == FileType::w8z)
      for (size_t g = 0; g < row.min.size(); ++g) row.min[g] += 128 * row.scale[g];
    return;
  }
  const unsigned char* from = s.rows[part] + static_cast<size_t>(file_row) * s.row_bytes[part];
  if (l.scaled)
    read_block_row(type, from, l, row);
  else
    dequantize_row(type, from, l.k, row.values.data());
}

void put_nibble(unsigned char* to, size_t at, int32_t code) {
  to[at / 2] = static_cast<unsigned char>(to[at / 2] | code << (at % 2 * 4));
}

void put_codes(const FormatInfo& f, const PartLayout& l, const Row& row, unsigned char* to) {
  const auto k = static_cast<size_t>(l.k);
  for (size_t i = 0; i < k; ++i) {
    const auto at = static_cast<size_t>(place(static_cast<int64_t>(i)));
    switch (l.codes) {
      case Codes::f32:
        std::memcpy(to + 4 * i, &row.values[i], 4);
        break;
      case Codes::bf16: {
        const uint16_t v = f32_to_bf16(row.values[i]);
        std::memcpy(to + 2 * at, &v, 2);
        break;
      }
      case Codes::i8:
        to[at] = static_cast<unsigned char>(row.codes[i] - (f.codebook ? 0 : f.type == FileType::w8z ? 128 : f.zero_point));
        break;
      case Codes::u4:
        put_nibble(to, static_cast<size_t>(nibble_place(static_cast<int64_t>(i))), row.codes[i]);
        break;
    }
  }
  // Padding: what stands for zero.
  if (l.codes == Codes::u4)
    for (int64_t i = l.k; i < l.k_padded; ++i) put_nibble(to, static_cast<size_t>(nibble_place(i)), l.zero);
}

}  // namespace

size_t linear_bytes(const LinearDesc& d) {
  int64_t bytes = 0;
  for (int p = 0; p < d.part_count; ++p) bytes += part_layout(d, p).bytes;
  return static_cast<size_t>(bytes);
}

int64_t linear_tiles(const LinearDesc& d) {
  int64_t tiles = 0;
  for (int p = 0; p < d.part_count; ++p) tiles += up(d.part_n[p], row_block) / row_block;
  return tiles;
}

void pack_tiles(const LinearDesc& d, const LinearSource& source, int64_t begin, int64_t end, const Put& put) {
  int64_t first = 0, at = 0;  // tiles and bytes before this part
  for (int p = 0; p < d.part_count; ++p) {
    const PartLayout l = part_layout(d, p);
    const int64_t tiles = up(l.rows, row_block) / row_block;
    const auto padded = static_cast<size_t>(l.k_padded), groups = static_cast<size_t>(l.groups);
    Row row{std::vector<uint8_t>(padded), std::vector<float>(padded), std::vector<int32_t>(padded),
            std::vector<float>(groups), std::vector<float>(groups)};
    std::vector<unsigned char> codes;
    std::vector<float> scales, mins;
    for (int64_t t = std::max(begin, first); t < std::min(end, first + tiles); ++t) {
      const int64_t row_begin = (t - first) * row_block, rows = std::min(row_block, l.rows - row_begin);
      codes.assign(static_cast<size_t>(rows * l.row_bytes), 0);
      scales.clear();
      mins.clear();
      for (int64_t r = 0; r < rows; ++r) {
        read_row(d, source, p, row_begin + r, l, row);
        put_codes(format_info(d.type[p]), l, row, codes.data() + r * l.row_bytes);
        scales.insert(scales.end(), row.scale.begin(), row.scale.end());
        mins.insert(mins.end(), row.min.begin(), row.min.end());
      }
      put(at + row_begin * l.row_bytes, codes.data(), codes.size());
      if (l.scaled) put(at + l.scales_at + row_begin * l.groups * 4, scales.data(), scales.size() * 4);
      if (l.has_min) put(at + l.mins_at + row_begin * l.groups * 4, mins.data(), mins.size() * 4);
    }
    first += tiles;
    at += l.bytes;
  }
}

}  // namespace orlop::cuda
