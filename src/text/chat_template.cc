#include "text/chat_template.h"

#include <algorithm>

#include "text/template_interp.h"
#include "text/template_string.h"

namespace orlop {
namespace tmpl {
namespace {

// The caller's JSON as values; all its strings, keys included, are untrusted unless told otherwise.
Value from_json(Run& run, const OrderedJson& j, bool untrusted, size_t depth) {
  if (depth > run.limits.max_depth)
    fail(Status::invalid_argument, "chat template: the data is nested deeper than ",
         run.limits.max_depth, " (max_depth)");
  run.step();
  const auto text = [&](const std::string& s) {
    const size_t bad = bad_utf8(s);
    if (bad != std::string::npos)
      fail(Status::invalid_argument, "chat template: a string of the data is not valid UTF-8 at byte ",
           bad);
    return run.string(s, untrusted);
  };
  switch (j.type()) {
    case OrderedJson::value_t::null: return Value::none();
    case OrderedJson::value_t::boolean: return Value::boolean(j.get<bool>());
    case OrderedJson::value_t::number_integer: return Value::integer(j.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: return Value::integer(j.get<uint64_t>());
    case OrderedJson::value_t::number_float: return Value::real(j.get<double>());
    case OrderedJson::value_t::string: return text(j.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(j.size());
      for (const auto& item : j) items.push_back(from_json(run, item, untrusted, depth + 1));
      return run.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Dict* d = run.make<Dict>();
      for (const auto& [key, item] : j.items())
        d->set(run, text(key), from_json(run, item, untrusted, depth + 1));
      return run.dict(d);
    }
    default: fail(Status::invalid_argument, "chat template: the data holds binary values");
  }
}

class Impl : public ChatTemplate {
 public:
  Impl(std::string_view source, const RenderLimits& limits)
      : limits_(limits), template_(parse_template(source, limits)) {}

  Rendered render(const OrderedJson& data, const std::vector<std::string>& trusted,
                  int64_t now) const override {
    if (!data.is_object())
      fail(Status::invalid_argument, "chat template: the data is not a JSON object");
    Run run(limits_);
    std::vector<Value> globals;
    globals.reserve(template_.names.size());
    for (const std::string& name : template_.names) {
      const auto it = data.find(name);
      if (it != data.end()) {
        const bool safe = std::find(trusted.begin(), trusted.end(), name) != trusted.end();
        globals.push_back(from_json(run, *it, !safe, 1));
      } else if (const auto f = function_named(name)) {
        Value v = Value::object(Kind::function, nullptr);
        v.i = static_cast<Int>(*f);
        globals.push_back(std::move(v));
      } else {
        globals.push_back(Value::undefined(Why::name, run.string(name).s));
      }
    }
    return Interp(template_, run, std::move(globals), now).render();
  }

 private:
  RenderLimits limits_;
  Template template_;
};

}  // namespace
}  // namespace tmpl

std::unique_ptr<ChatTemplate> ChatTemplate::parse(std::string_view source,
                                                  const RenderLimits& limits) {
  return std::make_unique<tmpl::Impl>(source, limits);
}

}  // namespace orlop
