// What strings of a `format` look like.
#pragma once
#include <string>
#include <string_view>

namespace orlop::schema {

enum class FormatUse {
  alone,    // of a length that suits most
  any,      // of any length: to tell whether a given string is one
  counted,  // of any length, and small enough for an automaton that counts: no IPv6 address in a
            // URI
};

// A regular expression of the whole string; empty: not known.
std::string_view format_regex(std::string_view name, FormatUse use);
std::string format_names();

}  // namespace orlop::schema
