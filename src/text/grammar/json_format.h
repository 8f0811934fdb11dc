// What strings of a `format` look like.
#pragma once
#include <string>
#include <string_view>

namespace orlop::schema {

// A regular expression of the whole string; empty: not known.
std::string_view format_regex(std::string_view name);
std::string format_names();

}  // namespace orlop::schema
