// A build whose outputs are free: no schemas, grammars, patterns, choices.
#include "base/without.h"
#include "text/grammar/guide.h"
#include "text/grammar/source.h"

namespace orlop {

Rules guide_rules(GuideKind, std::string_view, ToolFormat, const GrammarLimits&) {
  fail_without("guide", "guides");
}
std::shared_ptr<const TokenTrie> TokenTrie::build(const Tokenizer&, int32_t,
                                                  std::vector<int32_t>) {
  fail_without("enable_guided_decoding", "guides");
}
std::shared_ptr<Guide> Guide::create(const Rules&, std::shared_ptr<const TokenTrie>) {
  fail_without("guide", "guides");
}

}  // namespace orlop
