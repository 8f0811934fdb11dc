// Normalization before pre-tokenization, with the origin of every byte where that is asked for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace orlop {

// NFC (Unicode Annex 15). Returns `text` itself when nothing can change, else `buffer`. With
// `origin`: for each byte of the result the range of `text` that it comes from. O(n log n).
std::string_view nfc(std::string_view text, std::string& buffer, std::vector<ByteRange>* origin);

// ' ' -> U+2581, with a U+2581 in front if `prefix`.
std::string_view escape_spaces(std::string_view text, bool prefix, std::string& buffer,
                               std::vector<ByteRange>* origin);

}  // namespace orlop
