// JSON Schema (2020-12, and what draft 7 writes differently) as a grammar of the JSON texts that
// validate. Keys come in the order of the schema's `properties`, those that may be left out are or
// are not there, then come the others. White space is bounded; json_text.h says how texts are
// written. What is not supported is refused by its path in the schema, never ignored: keywords that
// say nothing of validity (title, description, default, examples, ...) are read over, all others
// are either kept or refused. nullable is OpenAPI 3.0's; of a oneOf it must be provable that no
// value matches two of its schemas.
#pragma once
#include <string_view>

#include "base/json.h"
#include "text/grammar/rules.h"

namespace orlop {

// May be called several times. Error(unsupported) and Error(invalid_argument) begin with the JSON
// pointer of the keyword: "/properties/a/uniqueItems: not supported: ...".
Rules::Expr json_schema_expr(Rules& rules, const OrderedJson& schema);
Rules::Expr json_object_expr(Rules& rules);  // any JSON object
Rules::Expr json_value_expr(Rules& rules);   // any JSON value

}  // namespace orlop
