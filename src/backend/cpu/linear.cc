// Packing of weights into tiles, and reading them back. The layout is told in matmul.h.
#include "backend/cpu/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/threads.h"
#include "base/half.h"
#include "base/quant_rows.h"
#include "ops/format.h"

namespace orlop::cpu {
namespace {

Span span_of(const LinearDesc& d, int part) {
  const int64_t groups = (d.k + 31) / 32;
  return {groups, d.group[part] ? d.group[part] / 32 : groups};
}
int64_t bytes_of_tile(const LinearDesc& d, int part) {
  return tile_bytes(packed_type(d.type[part], d.compute), span_of(d, part));
}

template <class T>
T load(const unsigned char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store(unsigned char* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// The bits 0, 8, 16, 24 of x as a nibble.
uint32_t gather_bits(uint32_t x) { return ((x & 0x01010101u) * 0x01020408u) >> 24; }

// One group's codes of one column into the planes of matmul.h. Bit planes must start zeroed.
void pack_codes(const PackInfo& p, const uint8_t* code, int column, unsigned char* to) {
  if (p.high_bits == 1) {
    const int shift = p.low_bits;
    for (int j = 0; j < 8; ++j) {
      const uint32_t bits = gather_bits(load<uint32_t>(code + 4 * j) >> shift);
      to[8 * j + column / 2] |= static_cast<unsigned char>(bits << (4 * (column % 2)));
    }
    to += 64;
  }
  if (p.high_bits == 2 || p.low_bits == 2) {
    const int shift = p.high_bits == 2 ? 4 : 0;
    for (int i = 0; i < 2; ++i) {
      uint32_t v = 0;
      for (int s = 0; s < 4; ++s)
        v |= ((load<uint32_t>(code + 16 * i + 4 * s) >> shift) & 0x03030303u) << (2 * s);
      store(to + 64 * i + 4 * column, v);
    }
    to += 128;
  }
  if (p.low_bits == 4) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t v = (load<uint32_t>(code + 8 * i) & 0x0f0f0f0fu) |
                         (load<uint32_t>(code + 8 * i + 4) & 0x0f0f0f0fu) << 4;
      store(to + 64 * i + 4 * column, v);
    }
  } else if (p.low_bits == 8) {
    for (int j = 0; j < 8; ++j) std::memcpy(to + 64 * j + 4 * column, code + 4 * j, 4);
  }
}

void pack_quant_column(FileType type, const unsigned char* row, const Span& span, int column,
                       unsigned char* tile) {
  const PackInfo& p = pack_info(type);
  unsigned char* codes = tile + scale_bytes(type, span);
  QuantGroup q;
  for (int64_t g = 0; g < span.groups; ++g) {
    unpack_group(type, row, g, q);
    pack_codes(p, q.code, column, codes + g * p.code_bytes);
    unsigned char* super = tile + g / p.super_groups * p.super_bytes;
    if (g % p.super_groups == 0) {
      store(super + 2 * column, q.d);
      if (p.has_min) store(super + 32 + 2 * column, q.m);
    }
    if (!p.sub) continue;
    const int header = p.has_min ? 64 : 32;
    unsigned char* sub = super + header + (p.super_bytes - header) / 8 * (g % 8) + column;
    for (int h = 0; h < p.halves; ++h) {
      if (type == FileType::q2_k) {
        sub[16 * h] = static_cast<unsigned char>(q.scale[h] | (q.min[h] << 4));
      } else {
        sub[16 * h] = static_cast<unsigned char>(q.scale[h]);
        if (p.has_min) sub[16 * (p.halves + h)] = static_cast<unsigned char>(q.min[h]);
      }
    }
  }
}

// A row as QuantRows gives it, with room for codes past k.
struct QuantRow {
  std::vector<uint8_t> code;
  std::vector<float> scale, min;
};
void pack_grouped_column(FileType type, const QuantRow& row, const Span& span, int column,
                         unsigned char* tile) {
  const PackInfo& p = pack_info(type);
  unsigned char* codes = tile + scale_bytes(type, span);
  for (int64_t g = 0; g < span.groups; ++g)
    pack_codes(p, row.code.data() + 32 * g, column, codes + g * p.code_bytes);
  const int64_t shares = (span.groups + span.share - 1) / span.share;
  for (int64_t s = 0; s < shares; ++s) {
    store(tile + s * p.super_bytes + 4 * column, row.scale[static_cast<size_t>(s)]);
    if (p.has_min) store(tile + s * p.super_bytes + 64 + 4 * column, row.min[static_cast<size_t>(s)]);
  }
}

void pack_float_column(FileType file, FileType packed, const unsigned char* row, int64_t k, int column,
                       unsigned char* tile) {
  for (int64_t i = 0; i < k; ++i) {
    if (packed == FileType::f32) {
      store(tile + 64 * i + 4 * column, load<uint32_t>(row + 4 * i));
    } else if (packed == FileType::f16) {
      store(tile + 32 * i + 2 * column, load<uint16_t>(row + 2 * i));
    } else {
      const uint16_t v = file == FileType::bf16  ? load<uint16_t>(row + 2 * i)
                         : file == FileType::f16 ? f32_to_bf16(f16_to_f32(load<uint16_t>(row + 2 * i)))
                                                 : f32_to_bf16(load<float>(row + 4 * i));
      store(tile + i / 4 * 128 + i % 2 * 64 + 4 * column + i % 4 / 2 * 2, v);
    }
  }
}

uint8_t packed_code(const PackInfo& p, const unsigned char* from, int k, int column) {
  int code = 0;
  if (p.high_bits == 1) {
    const int bit = 4 * column + k % 4;
    code |= ((from[8 * (k / 4) + bit / 8] >> (bit % 8)) & 1) << p.low_bits;
    from += 64;
  }
  if (p.high_bits == 2 || p.low_bits == 2) {
    const int two = (from[64 * (k / 16) + 4 * column + k % 4] >> (2 * (k % 16 / 4))) & 3;
    code |= p.high_bits == 2 ? two << 4 : two;
    from += 128;
  }
  if (p.low_bits == 4)
    code |= (from[64 * (k / 8) + 4 * column + k % 4] >> (4 * (k % 8 / 4))) & 15;
  else if (p.low_bits == 8)
    code = from[64 * (k / 4) + 4 * column + k % 4];
  return static_cast<uint8_t>(code);
}

}  // namespace

int64_t linear_tiles(const LinearDesc& d) {
  if (d.glu != Glu::none) return (d.part_n[0] + 15) / 16;
  int64_t tiles = 0;
  for (int p = 0; p < d.part_count; ++p) tiles += (d.part_n[p] + 15) / 16;
  return tiles;
}

size_t linear_bytes(const LinearDesc& d) {
  int64_t bytes = 0;
  for (int p = 0; p < d.part_count; ++p) bytes += (d.part_n[p] + 15) / 16 * bytes_of_tile(d, p);
  return static_cast<size_t>(bytes);
}

void linear_pack(const LinearDesc& d, const LinearSource& source, int64_t begin, int64_t end,
                 void* packed) {
  const int64_t groups = (d.k + 31) / 32;
  QuantRow quant;
  const auto pack_tile = [&](int part, int64_t tile, unsigned char* to) {
    const FileType file = d.type[part], type = packed_type(file, d.compute);
    const Span span = span_of(d, part);
    std::memset(to, 0, static_cast<size_t>(tile_bytes(type, span)));
    const int64_t columns = std::min<int64_t>(16, d.part_n[part] - tile * 16);
    for (int c = 0; c < columns; ++c) {
      const int64_t r = tile * 16 + c;
      const int64_t file_row = source.row_map[part] ? source.row_map[part][r] : r;
      if (has_groups(file)) {
        // Codes past k are multiplied by zeros; they are the zero point all the same.
        quant.code.assign(static_cast<size_t>(groups * 32), pack_info(type).zero);
        quant.scale.resize(static_cast<size_t>(groups));
        quant.min.resize(static_cast<size_t>(groups));
        source.quant[part]->row(file_row, quant.code.data(), quant.scale.data(), quant.min.data());
        pack_grouped_column(type, quant, span, c, to);
        continue;
      }
      const unsigned char* row =
          source.rows[part] + static_cast<size_t>(file_row) * source.row_bytes[part];
      if (is_float(file))
        pack_float_column(file, type, row, d.k, c, to);
      else
        pack_quant_column(file, row, span, c, to);
    }
  };
  unsigned char* to = static_cast<unsigned char*>(packed);
  if (d.glu != Glu::none) {
    const int64_t gate = bytes_of_tile(d, 0), up = bytes_of_tile(d, 1);
    for (int64_t t = begin; t < end; ++t) {
      pack_tile(0, t, to + t * (gate + up));
      pack_tile(1, t, to + t * (gate + up) + gate);
    }
    return;
  }
  int64_t first = 0;
  for (int p = 0; p < d.part_count; ++p) {
    const int64_t tiles = (d.part_n[p] + 15) / 16, bytes = bytes_of_tile(d, p);
    for (int64_t t = std::max(begin, first); t < std::min(end, first + tiles); ++t)
      pack_tile(p, t - first, to + (t - first) * bytes);
    first += tiles;
    to += tiles * bytes;
  }
}

void expand_group(FileType type, const unsigned char* tile, const Span& span, int64_t g, int begin,
                  int end, ExpandedGroup& out) {
  const PackInfo& p = pack_info(type);
  const unsigned char* codes = tile + scale_bytes(type, span) + g * p.code_bytes;
  for (int k = 0; k < 32; ++k) {
    for (int c = begin; c < end; ++c) {
      const uint8_t code = packed_code(p, codes, k, c);
      out.code[k][c] = type == FileType::f8 ? e4m3_to_f32(code)
                       : p.codebook         ? iq4_nl_values[code]
                                            : static_cast<float>(code - p.zero);
    }
  }
  if (p.grouped) {
    const unsigned char* share = tile + g / span.share * p.super_bytes;
    for (int c = begin; c < end; ++c) {
      out.scale[0][c] = out.scale[1][c] = load<float>(share + 4 * c);
      out.min[0][c] = out.min[1][c] = p.has_min ? load<float>(share + 64 + 4 * c) : 0.0f;
    }
    return;
  }
  const unsigned char* super = tile + g / p.super_groups * p.super_bytes;
  const int header = p.has_min ? 64 : 32;
  const unsigned char* sub = super + header + (p.super_bytes - header) / 8 * (g % 8);
  for (int c = begin; c < end; ++c) {
    const float d = f16_to_f32(load<uint16_t>(super + 2 * c));
    const float m = p.has_min ? f16_to_f32(load<uint16_t>(super + 32 + 2 * c)) : 0.0f;
    for (int h = 0; h < 2; ++h) {
      if (!p.sub) {
        out.scale[h][c] = d;
        out.min[h][c] = m;
        continue;
      }
      const int at = p.halves == 2 ? h : 0;
      int scale = static_cast<int8_t>(sub[16 * at + c]), min = 0;
      if (type == FileType::q2_k) {
        min = (scale >> 4) & 15;
        scale &= 15;
      } else if (p.has_min) {
        min = static_cast<int8_t>(sub[16 * (p.halves + at) + c]);
      }
      out.scale[h][c] = d * static_cast<float>(scale);
      out.min[h][c] = -(m * static_cast<float>(min));
    }
  }
}

void expand_floats(FileType type, const unsigned char* tile, int64_t g, int begin, int end,
                   float w[32][16]) {
  const unsigned char* from = tile + g * pack_info(type).code_bytes;
  for (int k = 0; k < 32; ++k) {
    for (int c = begin; c < end; ++c) {
      if (type == FileType::f32)
        w[k][c] = load<float>(from + 64 * k + 4 * c);
      else if (type == FileType::f16)
        w[k][c] = f16_to_f32(load<uint16_t>(from + 32 * k + 2 * c));
      else
        w[k][c] = bf16_to_f32(
            load<uint16_t>(from + k / 4 * 128 + k % 2 * 64 + 4 * c + k % 4 / 2 * 2));
    }
  }
}

void embed(const Exec& exec, const EmbedArgs& args) {
  const auto rows = [](const void* p, int64_t begin, int64_t end, int) {
    const EmbedArgs& a = *static_cast<const EmbedArgs*>(p);
    const LinearDesc& d = *a.desc;
    const FileType type = packed_type(d.type[0], d.compute);
    const PackInfo& info = pack_info(type);
    const Span span = span_of(d, 0);
    ExpandedGroup q;
    float w[32][16];
    for (int64_t r = begin; r < end; ++r) {
      const int32_t id = a.id(r);
      const unsigned char* tile = static_cast<const unsigned char*>(a.packed) +
                                  id / 16 * tile_bytes(type, span);
      const int c = id % 16;
      float* out = a.out + r * d.k;
      for (int64_t g = 0; g < span.groups; ++g) {
        const int n = static_cast<int>(std::min<int64_t>(32, d.k - 32 * g));
        if (info.low_bits == 0) {
          expand_floats(type, tile, g, c, c + 1, w);
          for (int i = 0; i < n; ++i) out[32 * g + i] = w[i][c] * a.scale;
          continue;
        }
        expand_group(type, tile, span, g, c, c + 1, q);
        for (int i = 0; i < n; ++i) {
          float v = q.scale[i / 16][c] * q.code[i][c];
          if (info.grouped && info.has_min)
            v = std::fma(q.code[i][c], q.scale[0][c], q.min[0][c]);
          else if (info.has_min)
            v += q.min[i / 16][c];
          out[32 * g + i] = v * a.scale;
        }
      }
    }
  };
  ThreadPool* pool = static_cast<ThreadPool*>(exec.queue);
  if (pool && args.rows > 4)
    pool->run(rows, &args, args.rows);
  else
    rows(&args, 0, args.rows, 0);
}

}  // namespace orlop::cpu
