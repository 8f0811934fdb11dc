// Which texts a schema's grammar takes; what is refused, and by which path. Against other
// validators: tests/python/test_json_schema.py.
#include <chrono>

#include "schema_rig.h"

using namespace orlop;
using namespace orlop::test;

TEST(values) {
  CHECK_TEXTS("{}",
              {"null", "true", "-0.5e-3", "\"a\"", "[]", "{}", R"([1, {"a": [null]},"b"])",
               "{\n  \"a\": 1,\n  \"b\": 2\n}"},
              {"", " 1", "1 ", "[ 1]", "{ }", "[1,]", "01", "1.", "nul", "\"\x01\"", "{\"a\" :1}",
               "{'a':1}", "+1", ".5", "NaN"});
  CHECK_TEXTS("true", {"1"}, {"x"});
  CHECK_TEXTS(R"({"type": "null"})", {"null"}, {"true", "0"});
  CHECK_TEXTS(R"({"type": "boolean"})", {"true", "false"}, {"null", "True"});
  CHECK_TEXTS(R"({"type": ["string", "null"]})", {"null", "\"\""}, {"1", "[]"});
  CHECK_INVALID("false", "JSON schema: no value is valid");
  Rules rules;
  rules.set_root(json_object_expr(rules));
  const auto guide = Guide::create(rules, nullptr);
  Guide::State s = guide->start();
  CHECK(guide->push_bytes(s, "[") == 0);
  CHECK(guide->push_bytes(s, "{\"a\":[{}]}") == 10 && guide->complete(s) && guide->exhausted(s));
  guide->release(s);
}

TEST(strings) {
  CHECK_TEXTS(
      R"({"type": "string"})",
      {"\"\"", "\"\xc3\xa9\xf0\x9f\x98\x80\x7f\"", R"("\"\\\/\b\f\n\r\t\u0000\u001F\u001f")"},
      {"\"", "\"\n\"", "\"\\u0041\"", "\"\\u0020\"", "\"\\x\"", "\"\xff\"", "\"\xed\xa0\x80\"",
       "'a'"});
  CHECK_TEXTS(R"({"type": "string", "minLength": 2, "maxLength": 3})",
              {"\"ab\"", "\"\xf0\x9f\x98\x80\\n\\u0001\""},
              {"\"\"", "\"a\"", "\"abcd\"", "\"\xc3\xa9\""});
  CHECK_TEXTS(R"({"type": "string", "pattern": "^a.c$"})",
              {"\"abc\"", "\"a\\\"c\"", "\"a/c\"", "\"a\\/c\""},
              {"\"ac\"", "\"xabc\"", "\"abcd\"", "\"a\"c\"", "\"a\\nc\""});
  CHECK_TEXTS(R"({"type": "string", "pattern": "b"})", {"\"b\"", "\"abc\""}, {"\"a\""});
  CHECK_TEXTS(R"({"pattern": "^\\d+$"})", {"\"0123456789\"", "5", "null"}, {"\"\"", "\"1a\""});
  // With a length, or several: an automaton of all.
  CHECK_TEXTS(R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4})",
              {"\"ab\"", "\"abcd\""}, {"\"a\"", "\"abcde\"", "\"aB\""});
  CHECK_TEXTS(
      R"({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "^[ab\"]*$"}, {"pattern": "\""}]})",
      {R"("a\"")", R"("\"bba")"}, {"\"a\"", R"("\"b")", R"("a\"c")"});
  CHECK_TEXTS(R"({"type": "string", "format": "email", "maxLength": 320})", {"\"a.b@c.de\""},
              {"\"a\"", "\"a@\"", "\"a..b@c\""});
  CHECK_TEXTS(R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
              {"\"https://a.b:80/c?d=e#f\"", "\"urn:a\"", "\"http://[::1]/\""},
              {"\"a\"", "\"/a\"", "\"http://a b\""});
  CHECK_TEXTS(R"({"type": "string", "format": "uri", "maxLength": 12})", {"\"http://a.b/c\""},
              {"\"http://a.b/cd\"", "\"a\""});
  CHECK_TEXTS(R"({"type": "string", "format": "email", "pattern": "@x\\.de$", "maxLength": 40})",
              {"\"a.b.c.d.e@x.de\""}, {"\"a@y.de\"", "\"a@b@x.de\""});
  CHECK_TEXTS(R"({"type": "string", "format": "date", "pattern": "^2024-0[23]"})",
              {"\"2024-02-29\"", "\"2024-03-31\""},
              {"\"2024-02-30\"", "\"2023-02-01\"", "\"2024-04-01\""});
}

TEST(formats) {
  const auto schema = [](const char* name) {
    return OrderedJson{{"type", "string"}, {"format", name}};
  };
  CHECK_TEXTS(schema("date"), {"\"2000-02-29\"", "\"1999-12-31\"", "\"0001-01-01\""},
              {"\"1900-02-29\"", "\"2001-02-29\"", "\"2001-04-31\"", "\"2001-13-01\"",
               "\"0000-01-01\"", "\"2001-1-1\""});
  CHECK_TEXTS(schema("time"), {"\"23:59:59Z\"", "\"00:00:00.123+05:30\""},
              {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\"", "\"12:00Z\""});
  CHECK_TEXTS(schema("date-time"), {"\"2024-02-29T12:00:00Z\"", "\"2024-01-01T00:00:00.5-23:59\""},
              {"\"2024-02-29 12:00:00Z\"", "\"2024-02-29T12:00:00\""});
  CHECK_TEXTS(schema("duration"),
              {"\"P1Y2M3DT4H5M6S\"", "\"P3W\"", "\"PT5M\"", "\"P1M\"", "\"P1YT1S\""},
              {"\"P\"", "\"PT\"", "\"P1Y1D\"", "\"P1DT\"", "\"1D\"", "\"P1W1D\"", "\"PT1S1M\""});
  CHECK_TEXTS(
      schema("uuid"),
      {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"123E4567-E89B-12D3-A456-426614174000\""},
      {"\"123e4567e89b12d3a456426614174000\"", "\"123e4567-e89b-12d3-a456-42661417400g\""});
  CHECK_TEXTS(schema("ipv4"), {"\"0.0.0.0\"", "\"255.249.199.99\""},
              {"\"256.0.0.0\"", "\"1.2.3\"", "\"01.2.3.4\"", "\"1.2.3.4.5\""});
  CHECK_TEXTS(schema("ipv6"),
              {"\"::\"", "\"::1\"", "\"1::\"", "\"1:2:3:4:5:6:7:8\"", "\"1:2:3:4:5:6:1.2.3.4\"",
               "\"fe80::1:2\"", "\"1:2:3:4:5:6:7::\"", "\"::ffff:1.2.3.4\"", "\"::2:3:4:5:6:7:8\"",
               "\"1:2:3:4:5::1.2.3.4\""},
              {"\":\"", "\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8::\"", "\"12345::\"",
               "\"1:2:3:4:5:6:7:1.2.3.4\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1:2:3:4:5:6::1.2.3.4\""});
  CHECK_TEXTS(R"({"type": "integer", "format": "int32"})", {"2147483647", "-2147483648"},
              {"2147483648", "-2147483649"});
  CHECK_REFUSED(R"({"properties": {"a": {"format": "hostname"}}})",
                "/properties/a/format: not supported: \"hostname\"");
}

TEST(integers) {
  CHECK_TEXTS(R"({"type": "integer"})", {"0", "-1", "18446744073709551615"},
              {"-0", "00", "1.0", "1e2", "-", "123456789012345678901"});
  CHECK_TEXTS(R"({"type": "integer", "minimum": -12, "maximum": 305})",
              {"-12", "-9", "0", "9", "99", "299", "305"},
              {"-13", "306", "310", "1000", "-20", "-0"});
  CHECK_TEXTS(R"({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 4})", {"2", "3"},
              {"1", "4"});
  CHECK_TEXTS(R"({"type": "integer", "minimum": 7, "exclusiveMinimum": true})",
              {"8", "99999999999999999999"}, {"7", "100000000000000000000"});
  CHECK_TEXTS(R"({"type": "integer", "multipleOf": 7})", {"0", "7", "-14", "700000000000000007"},
              {"1", "8", "700000000000000008"});
  CHECK_TEXTS(R"({"type": "integer", "multipleOf": 1000, "minimum": 1500})", {"2000", "10000"},
              {"1000", "0", "1500", "2001"});
  CHECK_TEXTS(
      R"({"multipleOf": 6, "allOf": [{"multipleOf": 4}], "type": "number", "maximum": 40, "minimum": 1})",
      {"12", "24", "36"}, {"0", "6", "48", "12.0"});
  CHECK_TEXTS(R"({"type": "integer", "multipleOf": 123457, "minimum": 1, "maximum": 1000000})",
              {"123457", "987656"}, {"123456", "0"});
  CHECK_REFUSED(R"({"items": {"type": "integer", "multipleOf": 1009}})",
                "/items/multipleOf: not supported: 1009 with numbers of up to 20 digits");
  CHECK_REFUSED(R"({"multipleOf": 0.1})", "/multipleOf: not supported: not a whole number");
  // Every integer from -300 to 300, against bounds and steps of all kinds.
  std::mt19937_64 random(7);
  for (int round = 0; round < (is_short() ? 20 : 200); ++round) {
    const int64_t a = static_cast<int64_t>(random() % 500) - 250,
                  b = a + static_cast<int64_t>(random() % 300);
    const int64_t step = 1 + static_cast<int64_t>(random() % 25);
    if ((b >= 0 ? b / step : -((-b + step - 1) / step)) * step < a) continue;  // no multiple
    const SchemaGuide guide(
        OrderedJson{{"type", "integer"}, {"minimum", a}, {"maximum", b}, {"multipleOf", step}});
    for (int64_t v = -300; v <= 300; ++v)
      CHECK(guide.takes(std::to_string(v)) == (v >= a && v <= b && v % step == 0));
  }
  // The automaton over digits, where the multiples are too many to be listed.
  const SchemaGuide large(
      R"({"type": "integer", "multipleOf": 37, "minimum": -123456, "maximum": 98765432109})");
  for (int round = 0; round < 2000; ++round) {
    const int64_t v = static_cast<int64_t>(random() % 98765600000) / 37 * 37 - 123500 / 37 * 37;
    CHECK(large.takes(std::to_string(v)) == (v >= -123456 && v <= 98765432109));
    CHECK(!large.takes(std::to_string(v + 1 + static_cast<int64_t>(random() % 36))));
  }
}

TEST(numbers) {
  CHECK_TEXTS(R"({"type": "number"})",
              {"0", "-0.0", "1.5", "1e5", "1E-07", "9.99e+307", "5e-324",
               "12345678901234567890.12345678901234567890"},
              {"10e5", "1e308", "1e-325", ".1", "1e", "0x1"});
  CHECK_TEXTS(R"({"type": "number", "minimum": 0.25, "maximum": 2})",
              {"0.25", "0.250", "0.3", "1", "1.999", "2", "2.0"},
              {"0.2", "0.249", "2.01", "0", "3", "1e0", "-1"});
  CHECK_TEXTS(R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
              {"0.00000001", "0.5", "0.999"}, {"0", "0.0", "1", "1.0", "-0.5"});
  CHECK_TEXTS(R"({"type": "number", "minimum": -1.5, "maximum": -0.5})",
              {"-1.5", "-1", "-0.5", "-0.75"}, {"-1.51", "-0.4", "0", "1", "-2"});
  CHECK_TEXTS(R"({"type": "number", "exclusiveMinimum": -1.5, "maximum": 10.125})",
              {"-1.49", "-0.0", "0", "9", "10.12", "10.125"},
              {"-1.5", "-1.50", "10.126", "10.2", "11"});
  CHECK_TEXTS(R"({"type": "number", "maximum": 1e300})", {"1", "-1", "99999999999999999999"},
              {"x"});
  CHECK_INVALID(R"({"type": "number", "minimum": 3, "exclusiveMaximum": 3})",
                "JSON schema: no value");
  // Decimals of up to two places between -4 and 4 against bounds of up to two.
  std::mt19937_64 random(3);
  for (int round = 0; round < (is_short() ? 10 : 100); ++round) {
    const int a = static_cast<int>(random() % 700) - 350,
              b = a + 3 + static_cast<int>(random() % 200);
    const bool open_a = random() % 2, open_b = random() % 2;
    const SchemaGuide guide(OrderedJson{{"type", "number"},
                                        {open_a ? "exclusiveMinimum" : "minimum", a / 100.0},
                                        {open_b ? "exclusiveMaximum" : "maximum", b / 100.0}});
    for (int v = -400; v <= 400; ++v) {
      char text[16];
      std::snprintf(text, sizeof(text), "%s%d.%02d", v < 0 ? "-" : "", std::abs(v) / 100,
                    std::abs(v) % 100);
      CHECK(guide.takes(text) == ((open_a ? v > a : v >= a) && (open_b ? v < b : v <= b)));
    }
  }
}

TEST(values_listed) {
  CHECK_TEXTS(R"({"enum": ["a", "ab", "", 1, 2.0, null, true, [1, "x"], {"k": {}}]})",
              {"\"a\"", "\"ab\"", "\"\"", "1", "2", "2.0", "null", "true", "[1, \"x\"]",
               "[1,\"x\"]", "{\"k\": {}}", "{\n \"k\":{}\n}"},
              {"\"b\"", "1.0", "false", "[1]", "{}"});
  CHECK_TEXTS(R"({"const": "\"\\\n\u0001\u00e9/"})", {"\"\\\"\\\\\\n\\u0001\xc3\xa9/\""},
              {"\"\\\"\\\\\\n\\u0001\\u00e9/\""});
  CHECK_TEXTS(
      R"({"enum": [1, 2, "a", "bc", null, 3.5], "type": ["integer", "string"], "minimum": 2, "maxLength": 1})",
      {"2", "\"a\""}, {"1", "\"bc\"", "null", "3.5"});
  CHECK_TEXTS(
      R"({"enum": [{"a": 1}, {"a": "x"}, {"b": 1}], "properties": {"a": {"type": "integer"}}, "required": ["a"]})",
      {"{\"a\": 1}"}, {"{\"a\": \"x\"}", "{\"b\": 1}"});
  CHECK_TEXTS(R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3.0, 2, 5]}], "const": 3})", {"3"},
              {"2", "3.0"});
  CHECK_INVALID(R"({"enum": [1], "type": "string"})", "JSON schema: no value");
  CHECK_TEXTS(R"({"enum": [18446744073709551615, -9223372036854775808]})",
              {"18446744073709551615", "-9223372036854775808"}, {"18446744073709551616"});
  CHECK_REFUSED(R"({"enum": [18446744073709551616]})",
                "/enum: not supported: a number beyond 64 bits");
  CHECK_REFUSED(R"({"items": {"const": {"a": [1e19, -1e300]}}})",
                "/items/const: not supported: a number beyond");
  CHECK_REFUSED(R"({"maximum": 31128880624384868351})", "/maximum: not supported: a number beyond");
  CHECK_INVALID(R"({"enum": []})", "/enum: must be a list of values");
}

TEST(arrays) {
  CHECK_TEXTS(R"({"type": "array", "items": {"type": "integer"}})",
              {"[]", "[1]", "[1,2, 3]", "[\n  1,\n  2\n]"}, {"[\"a\"]", "[1,]", "[ ]", "[1  ,2]"});
  CHECK_TEXTS(R"({"type": "array", "minItems": 2, "maxItems": 3})", {"[1,2]", "[1,2,3]"},
              {"[]", "[1]", "[1,2,3,4]"});
  CHECK_TEXTS(
      R"({"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": false, "minItems": 1})",
      {"[1]", "[1,\"a\"]"}, {"[]", "[2]", "[1,2]", "[1,\"a\",1]"});
  CHECK_TEXTS(
      R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"type": "boolean"}})",
      {"[]", "[1]", "[1,true,false]"}, {"[true]", "[1,1]"});
  CHECK_TEXTS(R"({"type": "array", "prefixItems": [true, false, true]})", {"[]", "[1]"},
              {"[1,2]", "[1,2,3]"});
  CHECK_TEXTS(
      R"({"type": "array", "allOf": [{"prefixItems": [{"type": "integer"}]}, {"items": {"minimum": 2}}]})",
      {"[2]", "[3,\"a\",2.5]"}, {"[1]", "[2.5]", "[2,1]"});
  CHECK_TEXTS(R"({"type": "array", "uniqueItems": false, "maxItems": 0})", {"[]"}, {"[1]"});
  CHECK_TEXTS(R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"});
  CHECK_REFUSED(R"({"properties": {"a": {"uniqueItems": true}}})",
                "/properties/a/uniqueItems: not supported: ");
}

TEST(objects) {
  CHECK_TEXTS(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": true}, "required": ["b"], "additionalProperties": false})",
      {R"({"b":"x"})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"x","c":null})",
       R"({"b":"x","c":[]})"},
      {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":1})", R"({"b":"x","d":1})",
       R"({"b":"x","b":"x"})", R"({,"b":"x"})"});
  // Others come after, and none has a name that is taken, however it is spelled.
  CHECK_TEXTS(
      R"({"type": "object", "properties": {"a": {"const": 1}, "ab\n": {"const": 2}}, "additionalProperties": {"const": 3}})",
      {"{}", R"({"a":1,"x":3,"":3})", R"({"":3})", R"({"ab":3})", R"({"ab\n":2,"abc":3})",
       R"({"ab\nx":3})", R"({"b":3,"\"":3,"\u0001":3})"},
      {R"({"a":3})", R"({"x":3,"a":1})", R"({"\u0061":3})", R"({"ab\n":3})", R"({"ab\u000a":3})",
       R"({"a":1,"a":3})", R"({"x":1})", R"({"\/":3})"});
  CHECK_TEXTS(
      R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}})",
      {R"({"z":1})", R"({"z":1,"a":2})"}, {"{}", R"({"a":1})", R"({"z":"a"})"});
  CHECK_TEXTS(R"({"type": "object", "properties": {"a": false, "b": {"type": "null"}}})",
              {"{}", R"({"b":null,"c":1})", R"({"c":1})"}, {R"({"a":1})", R"({"b":null,"a":1})"});
  CHECK_INVALID(R"({"type": "object", "properties": {"a": false}, "required": ["a"]})",
                "JSON schema: no value");
  CHECK_TEXTS(
      R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}, "additionalProperties": false})",
      {"{}", R"({"a":1})", R"({"ab":3})", R"({"b":"x","xb":4})"},
      {R"({"ab":2})", R"({"ab":"x"})", R"({"x":1})", R"({"b":2})", R"({"a":1.5})"});
  CHECK_TEXTS(
      R"({"type": "object", "properties": {"ab": {"maximum": 5}}, "patternProperties": {"^a": {"type": "integer"}}, "required": ["ac"]})",
      {R"({"ab":5,"ac":1,"x":"y"})", R"({"ac":1,"ad":2})"},
      {R"({"ab":6,"ac":1})", R"({"ab":"x","ac":1})", R"({"ac":"x"})", R"({"ac":1,"ad":"x"})"});
}

TEST(object_counts) {
  const char* closed =
      R"({"type": "object", "properties": {"a": true, "b": true, "c": true, "d": true}, "required": ["b"], "additionalProperties": false, "minProperties": 2, "maxProperties": 3})";
  CHECK_TEXTS(
      closed,
      {R"({"a":1,"b":1})", R"({"b":1,"d":1})", R"({"a":1,"b":1,"d":1})", R"({"b":1,"c":1,"d":1})"},
      {R"({"b":1})", R"({"a":1,"c":1})", R"({"a":1,"b":1,"c":1,"d":1})", "{}"});
  CHECK_TEXTS(R"({"type": "object", "minProperties": 1})", {R"({"a":1})"}, {"{}"});
  CHECK_TEXTS(R"({"type": "object", "maxProperties": 2})", {"{}", R"({"a":1})", R"({"a":1,"b":1})"},
              {R"({"a":1,"b":1,"c":1})"});
  CHECK_TEXTS(
      R"({"type": "object", "properties": {"a": true, "b": true}, "required": ["a"], "minProperties": 2, "maxProperties": 3})",
      {R"({"a":1,"b":1})", R"({"a":1,"x":1})", R"({"a":1,"b":1,"x":1})"},
      {R"({"a":1})", R"({"a":1,"b":1,"x":1,"y":1})"});
  CHECK_TEXTS(R"({"type": "object", "maxProperties": 0})", {"{}"}, {R"({"a":1})"});
  CHECK_REFUSED(R"({"type": "object", "minProperties": 2})",
                "/minProperties: not supported: 2 with 0 required");
}

TEST(combinations) {
  CHECK_TEXTS(
      R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}], "minimum": 5})",
      {"5", "\"a\""}, {"4", "\"ab\"", "null"});
  CHECK_TEXTS(
      R"({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}, "b": {"type": "null"}}, "required": ["a"]}], "type": "object", "additionalProperties": true})",
      {R"({"a":3,"b":null})", R"({"a":4})"}, {R"({"a":2})", R"({"a":3.5})", R"({"b":null})"});
  // additionalProperties sees the properties beside it alone.
  CHECK_TEXTS(
      R"({"type": "object", "allOf": [{"properties": {"a": true}, "additionalProperties": false}, {"properties": {"b": true}}]})",
      {"{}", R"({"a":1})"}, {R"({"b":1})", R"({"a":1,"b":1})"});
  CHECK_TEXTS(R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"a\""}, {"1.5"});
  CHECK_TEXTS(R"({"oneOf": [{"const": 1}, {"enum": [2, 3]}]})", {"1", "3"}, {"4"});
  CHECK_TEXTS(
      R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k"]},
                             {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k", "y"]}]})",
      {R"({"k":"a","x":1})", R"({"k":"b","y":1})"},
      {R"({"k":"a","x":"s"})", R"({"k":"b"})", R"({"x":1})"});
  CHECK_TEXTS(
      R"({"type": "object", "required": ["k"], "oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}]})",
      {R"({"k":1})", R"({"k":2})"}, {R"({"k":3})", "{}"});
  CHECK_TEXTS(
      R"({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}]})",
      {"3", "4"}, {"a"});
  CHECK_REFUSED(
      R"({"items": {"oneOf": [{"type": "null"}, {"type": "integer"}, {"type": "number"}]}})",
      "/items/oneOf: not supported: a value may match both schema 1 and schema 2");
  CHECK_TEXTS(R"({"type": "string", "nullable": true})", {"null", "\"a\""}, {"1"});
  CHECK_REFUSED(R"({"anyOf": [{"type": "string"}], "nullable": true})", "/nullable: not supported");
}

TEST(references) {
  CHECK_TEXTS(
      R"({"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/t"})",
      {R"({"v":1})", R"({"v":1,"l":{"v":2,"r":{"v":3}},"r":{"v":4}})"},
      {R"({"v":1,"l":{}})", R"({"l":{"v":1}})"});
  CHECK_TEXTS(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  CHECK_TEXTS(
      R"({"definitions": {"a/b~c %": {"const": 1}}, "items": {"$ref": "#/definitions/a~1b~0c%20%25"}, "type": "array"})",
      {"[1]"}, {"[2]"});
  CHECK_TEXTS(
      R"({"$id": "https://x.y/z", "$defs": {"a": {"const": 1}}, "$ref": "https://x.y/z#/$defs/a"})",
      {"1"}, {"2"});
  CHECK_TEXTS(R"({"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a", "minimum": 3})", {"3"},
              {"2", "3.5"});
  CHECK_TEXTS(
      R"({"prefixItems": [{"const": 1}, {"$ref": "#/prefixItems/0"}], "type": "array", "minItems": 2, "items": false})",
      {"[1,1]"}, {"[1,2]"});
  CHECK_TEXTS(
      R"({"properties": {"a": {"$ref": "#/$defs/x"}}, "type": "object", "$defs": {"x": {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/x"}}}}})",
      {"{}", R"({"b":1})"}, {R"({"a":1})"});
  CHECK_INVALID(R"({"$ref": "#"})", "/$ref: a schema that refers to itself");
  CHECK_INVALID(
      R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, true]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
      "/$defs/a/$ref: a schema that refers to itself");
  CHECK_INVALID(R"({"$ref": "#/$defs/nope"})", "/$ref: \"#/$defs/nope\" leads nowhere");
  CHECK_INVALID(R"({"$ref": "#/type", "type": "string"})", "/$ref: \"#/type\" is no schema");
  CHECK_REFUSED(R"({"$ref": "other.json#/a"})",
                "/$ref: not supported: \"other.json#/a\" lies in another document");
  CHECK_REFUSED(R"({"$ref": "#name"})", "/$ref: not supported");
}

TEST(refused_by_path) {
  for (const char* key :
       {"not", "if", "then", "else", "dependentSchemas", "dependentRequired", "contains",
        "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "x-mine"}) {
    const OrderedJson schema = {{"$defs", {{"d", {{key, OrderedJson::object()}}}}},
                                {"items", {{"anyOf", {{{"$ref", "#/$defs/d"}}}}}}};
    CHECK(refusal(schema.dump()).starts_with(cat("/$defs/d/", key, ": not supported: ")) ||
          refusal(schema.dump())
              .starts_with(cat("/items/anyOf/0/$defs/d/", key, ": not supported: ")));
  }
  CHECK_REFUSED(
      R"({"properties": {"a/b": {"maxLenght": 3}}})",
      "/properties/a~1b/maxLenght: not supported: unknown keyword (did you mean maxLength?)");
  CHECK_INVALID(R"({"type": "float"})", "/type: must be null, boolean");
  CHECK_INVALID(R"({"properties": {"a": 1}})", "/properties/a: must be a schema");
  CHECK_INVALID(R"({"minLength": -1})", "/minLength: must be a whole number");
  CHECK_INVALID(R"({"maximum": "1"})", "/maximum: must be a number");
  CHECK_INVALID(R"({"required": "a"})", "/required: must be a list");
  CHECK_INVALID(R"({"pattern": "("})", "/pattern: regular expression: ");
  CHECK_INVALID("[]", "JSON schema: must be an object");
  CHECK_TEXTS(
      R"({"title": "t", "description": "d", "default": 1, "examples": [2], "$schema": "s", "$id": "i", "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": false, "type": "null"})",
      {"null"}, {"1"});
}

TEST(hostile) {
  const auto start = std::chrono::steady_clock::now();
  // Products of alternatives.
  OrderedJson all = OrderedJson::array();
  for (int i = 0; i < 30; ++i)
    all.push_back({{"anyOf", {{{"minLength", i}}, {{"minimum", i}}, {{"maxItems", i}}}}});
  CHECK_INVALID((OrderedJson{{"allOf", all}}).dump(), "");
  // References that double at each step.
  OrderedJson defs;
  for (int i = 0; i < 40; ++i) {
    const OrderedJson next = {{"$ref", cat("#/$defs/", i + 1)}};
    defs[std::to_string(i)] = {{"allOf", {next, next}}};
  }
  defs["40"] = {{"const", 1}};
  CHECK_TEXTS((OrderedJson{{"$defs", defs}, {"$ref", "#/$defs/0"}}), {"1"}, {"2"});
  OrderedJson values = OrderedJson::array();
  for (int i = 0; i < 50'000; ++i) values.push_back(cat("value ", i));
  CHECK_TEXTS((OrderedJson{{"enum", values}}), {"\"value 49999\""}, {"\"value 50000\""});
  OrderedJson deep = {{"type", "array"}, {"maxItems", 1}};
  std::string text = "[]";
  for (int i = 0; i < 1000; ++i) {
    deep = {{"type", "array"}, {"items", deep}, {"minItems", 1}};
    text = "[" + text + "]";
  }
  CHECK_TEXTS(deep, {text}, {"[]"});
  OrderedJson place = {{"type", "null"}};
  for (int i = 0; i < 900; ++i) place = {{"allOf", {place}}};
  CHECK_INVALID(place.dump(), "/allOf/0");
  // Values that are looked at by schemas that come back to them, and long ways through references.
  CHECK_TEXTS(
      R"({"$defs": {"t": {"enum": [{"a": {}}, {"a": {"a": 1}}, {}, {"a": {"a": {}}}], "properties": {"a": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"})",
      {"{}", R"({"a":{}})", R"({"a":{"a":{}}})"}, {R"({"a":{"a":1}})"});
  OrderedJson chain;
  for (int i = 0; i < 5000; ++i)
    chain[cat("d", i)] = {{"enum", {{{"a", OrderedJson::object()}}, OrderedJson::object()}},
                          {"properties", {{"a", {{"$ref", cat("#/$defs/d", (i + 1) % 5000)}}}}}};
  CHECK_TEXTS((OrderedJson{{"$defs", chain}, {"$ref", "#/$defs/d0"}}), {"{}", R"({"a":{}})"},
              {R"({"a":1})"});
  for (int i = 0; i < 4000; ++i) {
    const OrderedJson next = {{"$ref", cat("#/$defs/d", i + 1)}};
    if (i % 2)
      chain[cat("d", i)] = {{"type", "object"}, {"required", {"a"}}, {"properties", {{"a", next}}}};
    else
      chain[cat("d", i)] = {{"oneOf", {{{"type", "null"}}, next}}};
  }
  chain["d4000"] = {{"type", "integer"}};
  CHECK_TEXTS((OrderedJson{{"$defs", chain}, {"$ref", "#/$defs/d0"}}),
              {"null", R"({"a":{"a":null}})"}, {R"({"a":1})"});
  OrderedJson many;
  for (int i = 0; i < 2000; ++i) many[cat("property ", i)] = {{"type", "integer"}};
  CHECK_TEXTS((OrderedJson{{"type", "object"}, {"properties", many}}),
              {R"({"property 1999":1,"x":2})"}, {R"({"property 3":"a"})"});
  CHECK_REFUSED(R"({"type": "string", "pattern": "^(.*a.{40}b)*$", "maxLength": 5000})",
                "/pattern: not supported: the automaton for it grows too large");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST(samples_are_taken) {
  std::mt19937_64 random(11);
  for (
      const char* schema :
      {R"({})",
       R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "\\w\\s\""}, "b": {"type": "number", "minimum": -2.5}}})",
       R"({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "integer", "multipleOf": 6}]}, "maxItems": 3})",
       R"({"type": "object", "patternProperties": {"^x": {"format": "date"}}, "minProperties": 1})"}) {
    const SchemaGuide guide(schema);
    for (int i = 0; i < (is_short() ? 20 : 300); ++i) {
      const std::string text = guide.sample(random);
      CHECK(guide.takes(text));
      CHECK(OrderedJson::accept(text));  // keys may come twice
    }
  }
}

int main(int argc, char** argv) {
  return test_main(argc, argv);
}
