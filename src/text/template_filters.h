// The filters, by topic; template_filters.cc has the table of their names.
#pragma once
#include "text/template_interp.h"

namespace orlop::tmpl {

using FilterFn = Value (*)(Interp&, const Value&, const Args&);
struct FilterEntry {
  const char* name;
  FilterFn fn;
};
// Each ends with an entry whose name is null.
extern const FilterEntry text_filters[];
extern const FilterEntry sequence_filters[];

// "a.b.0" or 0 -> the item of an item of v; null attribute: v itself.
class Getter {
 public:
  Getter(Interp& in, const Value* attribute);
  Value operator()(const Value& v, const Value* otherwise = nullptr) const;

 private:
  Interp& in_;
  std::vector<Value> path_;
};

}  // namespace orlop::tmpl
