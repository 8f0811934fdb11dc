#include "backend/cuda/pack.h"

#include <algorithm>
#include <cmath>
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
  std::vector<float> scale, min;  // [groups]
};

void read_block_row(FileType type, const unsigned char* from, const Piece& l, Row& row) {
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

void read_row(const LinearDesc& d, const LinearSource& s, int part, int64_t r, const Piece& l, Row& row) {
  const FileType type = d.type[part];
  const int64_t file_row = s.row_map[part] ? s.row_map[part][r] : r;
  const auto k = static_cast<size_t>(l.k);
  if (has_groups(type)) {
    s.quant[part]->row(file_row, row.raw.data(), row.scale.data(), row.min.data());
    for (size_t i = 0; i < k; ++i) {
      row.codes[i] = row.raw[i];
      // Products take the code that means "not a number" for 480: its scale says it instead.
      if (type == FileType::f8 && (row.raw[i] & 127) == 127) row.scale[i / static_cast<size_t>(l.group)] = NAN;
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

int32_t stored(const FormatInfo& f, const Piece& l, int32_t code) {
  return l.codes != Codes::i8 ? code : code - (f.codebook ? 0 : f.type == FileType::w8z ? 128 : f.zero_point);
}

void put_plain(const FormatInfo& f, const Piece& l, const Row& row, unsigned char* to) {
  const auto k = static_cast<size_t>(l.k);
  if (l.codes == Codes::f32) {
    std::memcpy(to, row.values.data(), 4 * k);
    return;
  }
  for (size_t i = 0; i < k; ++i)
    if (l.codes == Codes::bf16) {
      const uint16_t v = f32_to_bf16(row.values[i]);
      std::memcpy(to + 2 * i, &v, 2);
    } else {
      to[i] = static_cast<unsigned char>(stored(f, l, row.codes[i]));
    }
}

// `to`: the tile's beginning; `r`: the row in it.
void put_tiled(const FormatInfo& f, const Piece& l, const Row& row, int64_t r, unsigned char* to) {
  const int64_t unit = unit_of(l.codes), each = unit / l.sub;
  for (int64_t u = 0; u < l.units; ++u) {
    unsigned char* codes = to + l.at(r, u);
    for (int64_t i = 0; i < unit; ++i) {
      // Padding is what stands for zero.
      const int64_t k = u * unit + i;
      const int32_t code = k < l.k ? stored(f, l, row.codes[static_cast<size_t>(k)]) : l.zero;
      if (l.codes == Codes::u4) {
        const int64_t at = nibble_place(i);
        codes[at / 2] = static_cast<unsigned char>(codes[at / 2] | code << (at % 2 * 4));
      } else {
        codes[place(i, unit)] = static_cast<unsigned char>(code);
      }
    }
    for (int64_t s = 0; s < l.sub; ++s) {
      const int64_t k = u * unit + s * each;
      if (k >= l.k) break;  // a scale of zero there
      const auto g = static_cast<size_t>(k / l.group);
      std::memcpy(to + l.scale_at(r, u) + 4 * s, &row.scale[g], 4);
      if (l.has_min) std::memcpy(to + l.min_at(r, u) + 4 * s, &row.min[g], 4);
    }
  }
}

}  // namespace

size_t linear_bytes(const LinearDesc& d) { return static_cast<size_t>(Pieces(d).bytes); }

int64_t linear_tiles(const LinearDesc& d) {
  int64_t tiles = 0;
  for (int p = 0; p < d.part_count; ++p) tiles += up(d.part_n[p], row_block) / row_block;
  return tiles;
}

void pack_tiles(const LinearDesc& d, const LinearSource& source, int64_t begin, int64_t end, const Put& put) {
  const Pieces all(d);
  int64_t first = 0;  // tiles before this part
  for (int i = 0; i < all.count; ++i) {
    const Piece& l = all.piece[i];
    const auto padded = static_cast<size_t>(l.k_padded), groups = static_cast<size_t>(up(l.k_padded, l.group) / l.group);
    Row row{std::vector<uint8_t>(padded), std::vector<float>(padded), std::vector<int32_t>(padded),
            std::vector<float>(groups), std::vector<float>(groups)};
    std::vector<unsigned char> bytes;
    int64_t before = 0;  // rows of the piece
    for (int p = l.part; p < l.part + l.parts; ++p) {
      const int64_t tiles = up(d.part_n[p], row_block) / row_block;
      for (int64_t t = std::max(begin, first); t < std::min(end, first + tiles); ++t) {
        const int64_t in_part = (t - first) * row_block, rows = std::min(row_block, d.part_n[p] - in_part);
        const int64_t at = before + in_part;  // in the piece
        const int64_t tile_bytes = l.units * l.block_bytes;
        if (l.codes == Codes::bf16 && d.type[p] == FileType::bf16 && !source.row_map[p] && l.k == l.k_padded) {  // as in the file
          put(l.begin + at * l.row_bytes, source.rows[p] + static_cast<size_t>(in_part) * source.row_bytes[p], static_cast<size_t>(rows * l.row_bytes));
          continue;
        }
        bytes.assign(static_cast<size_t>(l.tiled ? up(rows, tile_rows) / tile_rows * tile_bytes : rows * l.row_bytes), 0);
        std::vector<float> scales;
        for (int64_t r = 0; r < rows; ++r) {
          read_row(d, source, p, in_part + r, l, row);
          if (l.tiled) {
            put_tiled(format_info(d.type[p]), l, row, r % tile_rows, bytes.data() + r / tile_rows * tile_bytes);
          } else {
            put_plain(format_info(d.type[p]), l, row, bytes.data() + r * l.row_bytes);
            scales.push_back(row.scale[0]);
          }
        }
        put(l.begin + (l.tiled ? at / tile_rows * tile_bytes : at * l.row_bytes), bytes.data(), bytes.size());
        if (!l.tiled && l.scaled) put(l.begin + l.scales_at + at * 4, scales.data(), scales.size() * 4);
      }
      first += tiles;
      before += d.part_n[p];
    }
  }
}

}  // namespace orlop::cuda
