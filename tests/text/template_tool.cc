// Renders templates for the comparison with Python's jinja2. One JSON object a line in
// {template, data, trusted, now}; one a line out {text, untrusted: [[begin, end], …]} (bytes) or
// {error, status}.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

int main() {
  using namespace orlop;
  std::string line;
  while (std::getline(std::cin, line)) {
    OrderedJson out = OrderedJson::object();
    try {
      const OrderedJson in = parse_ordered_json(line, "request", {.max_depth = 200});
      const auto t = ChatTemplate::parse(in.at("template").get<std::string>());
      const Rendered r = t->render(in.at("data"), in.at("trusted").get<std::vector<std::string>>(),
                                   in.at("now").get<int64_t>());
      out["text"] = r.text;
      out["untrusted"] = OrderedJson::array();
      for (const ByteRange& b : r.untrusted) out["untrusted"].push_back({b.begin, b.end});
    } catch (const Error& e) {
      out = {{"error", e.text()}, {"status", static_cast<int>(e.status())}};
    } catch (const std::exception& e) {
      out = {{"error", std::string("not a typed error: ") + e.what()}, {"status", 0}};
    }
    std::cout << out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
  }
}
