// Drops the texts of control tokens that end an output, where they do stand at its end.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace orlop {

class EndFilter {
 public:
  explicit EndFilter(std::vector<std::string> ends) : ends_(std::move(ends)) {
    std::erase(ends_, "");
    // A longer one first, so that it is found where a shorter one begins it.
    std::sort(ends_.begin(), ends_.end(),
              [](const auto& a, const auto& b) { return a.size() > b.size(); });
    for (const std::string& e : ends_)
      if (firsts_.find(e[0]) == std::string::npos) firsts_ += e[0];
  }
  // Gives what can no longer be part of an end.
  void push(std::string_view text, std::string& out) { give(text, true, out); }
  void finish(std::string& out) { give({}, false, out); }

 private:
  // Few, so that what is held and looked at twice stays small.
  static constexpr int max_ends = 4;
  static constexpr size_t max_space = 16;

  void give(std::string_view text, bool more, std::string& out) {
    if (ends_.empty()) {
      out += text;
      return;
    }
    held_ += text;
    size_t at = 0;
    while ((at = held_.find_first_of(firsts_, at)) != std::string::npos && !ends(at, more)) ++at;
    at = std::min(at, held_.size());
    out.append(held_, 0, at);
    held_.erase(0, at);
  }

  // Whether held_ from `at` on is nothing but ends and a little white space, or may become so.
  bool ends(size_t at, bool more) const {
    const std::string_view held = held_;
    for (int n = 0; n < max_ends; ++n) {
      const std::string_view rest = held.substr(at);
      const std::string* whole = nullptr;
      for (const std::string& e : ends_) {
        if (more && rest.size() < e.size() && std::string_view(e).starts_with(rest)) return true;
        if (!whole && rest.starts_with(e)) whole = &e;
      }
      if (!whole) return false;
      at += whole->size();
      for (size_t i = 0; i < max_space && at < held.size(); ++i, ++at)
        if (std::string_view(" \t\n\r").find(held[at]) == std::string_view::npos) break;
      if (at == held.size()) return true;
    }
    return false;
  }

  std::vector<std::string> ends_;
  std::string firsts_;  // the bytes that ends begin with
  std::string held_;
};

}  // namespace orlop
