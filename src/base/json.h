// Hostile JSON -> nlohmann::json with bounds: depth, size, no duplicate keys, UTF-8 checked.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace orlop {

using Json = nlohmann::json;
// Keeps key order: chat templates print mappings in the order they were given.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_depth = 64;
  size_t max_bytes = size_t{256} << 20;
};

// Throws Error(bad_format) that starts with `what` and names the byte. NaN and Infinity are refused.
Json parse_json(std::string_view text, const char* what, const JsonLimits& limits = {});
OrderedJson parse_ordered_json(std::string_view text, const char* what,
                               const JsonLimits& limits = {});

// The known key closest to `key` by edit distance, or "" when none is near.
std::string nearest_key(std::string_view key, const std::vector<std::string_view>& known);

}  // namespace orlop
