// Grammars in llama.cpp's GBNF syntax:
//   root  ::= item ("," item)*     # the rule that a text must follow
//   item  ::= "literal" | [a-z0-9_]+ | [^\n]{2,5} | . | other-rule
// Rule names: letters, digits, - and _. Literals and classes: code points, \n \r \t \\ \" \[ \],
// \xHH \uHHHH \UHHHHHHHH. * + ? {m} {m,} {m,n}. A rule ends with its line, but for lines within ( ),
// after ::= and around |. [^...] and . take line ends too. Refused: tokens (<...>), which name a
// vocabulary.
#pragma once
#include <string_view>

#include "text/grammar/rules.h"

namespace orlop {

// Defines every rule and sets the root. Error(invalid_argument) with line and column (in code points,
// from 1) and the reason.
void gbnf_rules(Rules& rules, std::string_view grammar);

}  // namespace orlop
