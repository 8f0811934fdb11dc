// Template source -> tokens, by Jinja's rules with trim_blocks and lstrip_blocks on.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_value.h"

namespace orlop::tmpl {

enum class Tok : uint8_t {
  data, variable_begin, variable_end, block_begin, block_end, name, string, integer, real,
  op, end,
};

struct Token {
  Tok kind = Tok::end;
  uint32_t line = 1;
  std::string text;  // data, name, string: the value; op: the operator
  Int integer = 0;
  double real = 0;
};

std::vector<Token> tokenize(std::string_view source, const RenderLimits& limits);
std::string describe(const Token& t);

template <class... Parts>
[[noreturn]] void syntax_error(uint32_t line, const Parts&... parts) {
  fail(Status::bad_format, "chat template, line ", line, ": ", parts...);
}
template <class... Parts>
[[noreturn]] void unsupported(uint32_t line, const Parts&... parts) {
  fail(Status::unsupported, "chat template, line ", line, ": ", parts..., " is not supported");
}

}  // namespace orlop::tmpl
