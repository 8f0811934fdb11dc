// Stop strings are matched byte by byte (Knuth, Morris, Pratt: Fast Pattern Matching in Strings,
// 1977): the state of each is the longest end of the text that begins it, which is also exactly what
// has to be held back.
#include "text/stream.h"

#include <algorithm>

#include "base/checked.h"
#include "text/utf8.h"

namespace orlop {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       bool skip_special, bool continuation)
    : detokenizer_(tokenizer, skip_special, continuation) {
  for (size_t i = 0; i < stops.size(); ++i) {
    Stop stop;
    stop.text = std::move(stops[i]);
    const std::string& s = stop.text;
    if (s.empty()) fail(Status::invalid_argument, "stop string ", i, " is empty");
    if (const size_t bad = utf8_valid_prefix(s); bad != s.size())
      fail(Status::invalid_argument, "stop string ", i, " is not UTF-8 at byte ", bad);
    if (s.size() > UINT32_MAX) fail(Status::invalid_argument, "stop string ", i, " is too long");
    stop.fallback.assign(s.size() + 1, 0);
    for (size_t n = 1; n < s.size(); ++n) {
      uint32_t k = stop.fallback[n];
      while (k > 0 && s[k] != s[n]) k = stop.fallback[k];
      stop.fallback[n + 1] = s[k] == s[n] ? k + 1 : 0;
    }
    stops_.push_back(std::move(stop));
  }
}

int TextStream::advance(std::string_view fresh, bool may_stop, std::string& out) {
  if (stops_.empty()) {
    out += fresh;
    return -1;
  }
  for (size_t i = 0; i < fresh.size(); ++i) {
    int done = -1;
    for (size_t k = 0; k < stops_.size(); ++k) {
      Stop& stop = stops_[k];
      uint32_t& m = stop.matched;
      while (m > 0 && stop.text[m] != fresh[i]) m = stop.fallback[m];
      if (stop.text[m] == fresh[i]) ++m;
      if (m < stop.text.size()) continue;
      if (may_stop && (done < 0 || stop.text.size() > stops_[static_cast<size_t>(done)].text.size()))
        done = static_cast<int>(k);
      m = stop.fallback[m];
    }
    if (done >= 0) {
      pending_.append(fresh.substr(0, i + 1));
      out.append(pending_, 0, pending_.size() - stops_[static_cast<size_t>(done)].text.size());
      pending_.clear();
      stopped_ = true;
      return done;
    }
  }
  pending_ += fresh;
  size_t held = 0;
  for (const Stop& stop : stops_) held = std::max<size_t>(held, stop.matched);
  out.append(pending_, 0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return -1;
}

int TextStream::push(int32_t id, std::string& out) {
  if (stopped_) return -1;
  fresh_.clear();
  detokenizer_.push(id, fresh_);
  return advance(fresh_, true, out);
}

void TextStream::push_unstopped(int32_t id, std::string& out) {
  if (stopped_) return;
  fresh_.clear();
  detokenizer_.push(id, fresh_);
  advance(fresh_, false, out);
}

void TextStream::finish(std::string& out) {
  if (stopped_) return;
  fresh_.clear();
  detokenizer_.finish(fresh_);
  if (advance(fresh_, true, out) >= 0) return;
  out += pending_;
  pending_.clear();
  stopped_ = true;
}

}  // namespace orlop
