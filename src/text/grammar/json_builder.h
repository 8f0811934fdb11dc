// Shapes to expressions.
#pragma once
#include <deque>
#include <map>
#include <vector>

#include "text/grammar/json_shape.h"

namespace orlop::schema {

class Builder {
 public:
  Builder(Rules& rules, const OrderedJson& schema);
  Expr build();

 private:
  Expr value(const Together& together);  // `nothing` when no value is valid
  Expr body(const Together& together);
  bool scalar(const Together& together);
  void add_values(const Shape& shape, std::vector<std::string>& texts, std::vector<Expr>& ways);
  Expr string(const Shape& shape);
  Expr array(const Shape& shape);
  Expr object(const Shape& shape);

  Expr ordered(const std::vector<Key>& keys, const std::vector<Expr>& members, Expr other);
  Expr counted(const Shape& shape, const std::vector<Key>& keys, const std::vector<Expr>& members,
               Expr other);
  Expr other_member(const Shape& shape, const std::vector<std::string>& taken);
  Expr list_of(Expr one, int64_t least, int64_t most);  // with commas between; least >= 1
  Expr times(Expr what, int64_t least, int64_t most);
  Expr in_rule(Expr body, const char* name);
  Expr seq(std::initializer_list<Expr> parts) {
    return text_.sequence({parts.begin(), parts.size()});
  }

  Rules& rules_;
  Document doc_;
  JsonText text_;
  Merger merger_;
  std::map<Together, Expr> values_;
  std::deque<std::pair<Together, int32_t>> open_;  // rules to be defined
};

}  // namespace orlop::schema
