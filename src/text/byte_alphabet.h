// GPT-2's byte alphabet: each byte has one printable character (Radford et al., Language Models are
// Unsupervised Multitask Learners, 2019; encoder.py): itself where it is printable in Latin-1, else
// U+0100 and on, in order.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace orlop {

struct ByteAlphabet {
  std::array<uint16_t, 256> code{};   // byte -> code point
  std::array<int16_t, 0x144> byte{};  // code point -> byte, or -1

  constexpr ByteAlphabet() {
    for (auto& b : byte) b = -1;
    uint16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      code[b] = printable ? static_cast<uint16_t>(b) : next++;
      byte[code[b]] = static_cast<int16_t>(b);
    }
  }
};
inline constexpr ByteAlphabet byte_alphabet;

// Appends the bytes that `piece` spells; false (and nothing appended) when one of its characters is
// outside the alphabet.
inline bool alphabet_bytes(std::string_view piece, std::string& out) {
  const size_t start = out.size();
  for (size_t pos = 0; pos < piece.size();) {
    const Utf8Step step = utf8_step(piece, pos);
    const int16_t b = step.whole && step.code < byte_alphabet.byte.size()
                          ? byte_alphabet.byte[step.code]
                          : int16_t{-1};
    if (b < 0) {
      out.resize(start);
      return false;
    }
    out.push_back(static_cast<char>(b));
    pos += step.length;
  }
  return true;
}

}  // namespace orlop
