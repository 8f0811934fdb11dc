// JSON Schema as grammar, for the comparison with Python's jsonschema. One JSON object a line in
// {schema, samples, seed, steps, texts}; one a line out {samples: [texts of the rules], accepted:
// [[bytes that were taken, whether the text may end there], ...], expressions, milliseconds} or
// {error, status}.
#include <chrono>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "grammar_sampler.h"
#include "text/grammar/guide.h"
#include "text/grammar/json_schema.h"

int main() {
  using namespace orlop;
  std::string line;
  while (std::getline(std::cin, line)) {
    OrderedJson out = OrderedJson::object();
    try {
      const OrderedJson in = parse_ordered_json(line, "request", {.max_depth = 2000});
      const auto start = std::chrono::steady_clock::now();
      Rules rules;
      rules.set_root(json_schema_expr(rules, in.at("schema")));
      const auto middle = std::chrono::steady_clock::now();
      const auto guide = Guide::create(rules, nullptr);
      const auto end = std::chrono::steady_clock::now();
      out["milliseconds"] = {std::chrono::duration<double, std::milli>(middle - start).count(),
                             std::chrono::duration<double, std::milli>(end - middle).count()};
      out["expressions"] = rules.nodes().size();
      out["samples"] = OrderedJson::array();
      if (const int samples = in.value("samples", 0)) {
        const test::GrammarSampler sampler(rules);
        std::mt19937_64 random(in.value("seed", uint64_t{1}));
        for (int i = 0; i < samples; ++i)
          out["samples"].push_back(sampler.sample(random, in.value("steps", 300)));
      }
      out["accepted"] = OrderedJson::array();
      for (const OrderedJson& text : in.value("texts", OrderedJson::array())) {
        Guide::State state = guide->start();
        const size_t taken = guide->push_bytes(state, text.get_ref<const std::string&>());
        out["accepted"].push_back({taken, guide->complete(state)});
        guide->release(state);
      }
    } catch (const Error& e) {
      out = {{"error", e.text()}, {"status", static_cast<int>(e.status())}};
    } catch (const std::exception& e) {
      out = {{"error", std::string("not a typed error: ") + e.what()}, {"status", 0}};
    }
    std::cout << out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
  }
}
