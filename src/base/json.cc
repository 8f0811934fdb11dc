#include "base/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"

namespace orlop {
namespace {

// Wraps nlohmann's DOM builder: counts depth, refuses duplicate keys, turns errors into ours.
template <class J>
class Builder : public nlohmann::detail::json_sax_dom_parser<J> {
  using Base = nlohmann::detail::json_sax_dom_parser<J>;

 public:
  Builder(J& root, const char* what, size_t max_depth)
      : Base(root, false), what_(what), max_depth_(max_depth) {}

  bool start_object(std::size_t n) {
    enter();
    keys_.emplace_back();
    return Base::start_object(n);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool start_array(std::size_t n) {
    enter();
    return Base::start_array(n);
  }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second)
      fail(Status::bad_format, what_, ": duplicate key ",
           Json(name.substr(0, 100)).dump(-1, ' ', false, Json::error_handler_t::replace));
    return Base::key(name);
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& e) {
    std::string text = e.what();
    const size_t cut = text.find("] ");  // drop the library's own prefix
    if (cut != std::string::npos) text.erase(0, cut + 2);
    fail(Status::bad_format, what_, ": not valid JSON at byte ", position, ": ",
         text.substr(0, 200));
  }

 private:
  void enter() {
    if (++depth_ > max_depth_)
      fail(Status::bad_format, what_, ": JSON nested deeper than ", max_depth_);
  }
  const char* what_;
  size_t max_depth_;
  size_t depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

template <class J>
J parse(std::string_view text, const char* what, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    fail(Status::bad_format, what, ": ", text.size(), " bytes of JSON, the limit is ",
         limits.max_bytes);
  J root;
  Builder<J> builder(root, what, limits.max_depth);
  J::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

Json parse_json(std::string_view text, const char* what, const JsonLimits& limits) {
  return parse<Json>(text, what, limits);
}

OrderedJson parse_ordered_json(std::string_view text, const char* what, const JsonLimits& limits) {
  return parse<OrderedJson>(text, what, limits);
}

std::string nearest_key(std::string_view key, const std::vector<std::string_view>& known) {
  key = key.substr(0, 100);
  size_t best = std::max<size_t>(3, key.size() / 2);
  std::string found;
  for (std::string_view k : known) {
    const size_t d = edit_distance(key, k);
    if (d < best) {
      best = d;
      found = k;
    }
  }
  if (found.empty() && key.size() >= 4)  // a part of one
    for (std::string_view k : known)
      if (k.find(key) != std::string_view::npos) return std::string(k);
  return found;
}

}  // namespace orlop
