#include "text/stream.h"

#include <algorithm>
#include <random>

#include "text/utf8.h"
#include "tokenizers.h"

using namespace orlop;
using namespace orlop::test;

namespace {

using Ids = std::vector<int32_t>;

// A tokenizer of single bytes: any text is any cut of it.
std::unique_ptr<Tokenizer> bytes_only() {
  Json j = parse_json(R"({"model":{"type":"BPE","vocab":{},"merges":[]},
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
      "decoder":{"type":"ByteLevel"},
      "added_tokens":[{"id":256,"content":"<end>","special":true}]})", "test");
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    std::string name;
    utf8_append(name, printable ? b : next++);
    j["model"]["vocab"][name] = b;
  }
  return Tokenizer::create(tokenizer_spec_from_json(j.dump(), ""));
}

// The rule in plain words, on the whole text: the stop that ends first, the longest of those.
struct Cut {
  int stop = -1;
  size_t at = 0;
};
Cut first_stop(const std::string& text, const std::vector<std::string>& stops) {
  Cut cut;
  size_t best = std::string::npos;
  for (size_t k = 0; k < stops.size(); ++k) {
    const size_t at = text.find(stops[k]);
    if (at == std::string::npos) continue;
    const size_t end = at + stops[k].size();
    if (end < best || (end == best && at < cut.at)) {
      best = end;
      cut = {static_cast<int>(k), at};
    }
  }
  return cut;
}

// The longest end of `text` that begins a stop without being it.
size_t must_hold(const std::string& text, const std::vector<std::string>& stops) {
  size_t held = 0;
  for (const std::string& s : stops)
    for (size_t n = std::min(s.size() - 1, text.size()); n > held; --n)
      if (text.compare(text.size() - n, n, s, 0, n) == 0) held = n;
  return held;
}

// Streams `ids` and compares with decode of the whole; returns false at the first difference.
bool streams_right(const Tokenizer& t, const Ids& ids, const std::vector<std::string>& stops,
                   bool skip_special) {
  const std::string whole = t.decode(ids, skip_special);
  const Cut cut = first_stop(whole, stops);
  TextStream stream(t, stops, skip_special);
  std::string out;
  int stopped = -1;
  for (const int32_t id : ids) {
    std::string part;
    const int s = stream.push(id, part);
    if (stopped >= 0 && (s >= 0 || !part.empty())) return false;  // nothing after a stop
    if (s >= 0) stopped = s;
    if (utf8_valid_prefix(part) != part.size()) return false;  // no code point is split
    out += part;
    if (!whole.starts_with(out)) return false;
  }
  std::string rest;
  stream.finish(rest);
  if (stopped >= 0 && !rest.empty()) return false;
  out += rest;
  if (cut.stop < 0) return stopped < 0 && out == whole;
  // A stop that the last, incomplete bytes complete shows only in finish().
  return (stopped == cut.stop || stopped < 0) && out == whole.substr(0, cut.at);
}

}  // namespace

TEST(random_ids_over_every_tokenizer) {
  std::mt19937 rng(20261129);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  for (const std::string name : tokenizer_names) {
    const Tokenizer* t = load_tokenizer(name);
    if (!t) continue;
    const auto size = static_cast<size_t>(t->vocab_size());
    int checked = 0, stopped = 0;
    for (int round = 0; round < 4000; ++round) {
      Ids ids(below(14));
      for (int32_t& id : ids) {
        // Bytes and their like are the first ids; special ones the first or last; some are beyond.
        const size_t kind = below(8);
        id = static_cast<int32_t>(kind < 3   ? below(300)
                                  : kind < 4 ? size - 1 - below(300)
                                  : kind < 5 ? size + below(3)
                                             : below(size));
        if (kind == 7 && checked % 2) id = static_cast<int32_t>(3 + below(256));
      }
      const bool skip = below(2);
      const std::string whole = t->decode(ids, skip);
      std::vector<std::string> stops;
      for (size_t n = below(4); n-- > 0 && !whole.empty();) {
        // A part of the text, at times with a wrong end: near misses have to come out again.
        size_t begin = below(whole.size()), end = begin + 1 + below(6);
        while (begin > 0 && (static_cast<uint8_t>(whole[begin]) & 0xc0) == 0x80) --begin;
        end = std::min(end, whole.size());
        while (end < whole.size() && (static_cast<uint8_t>(whole[end]) & 0xc0) == 0x80) ++end;
        std::string stop = whole.substr(begin, end - begin);
        if (below(3) == 0) stop += "z";
        stops.push_back(std::move(stop));
      }
      stopped += first_stop(whole, stops).stop >= 0;
      const bool right = streams_right(*t, ids, stops, skip);
      if (!right)
        std::fprintf(stderr, "  %s: %s, stops %s, skip %d\n", name.c_str(), Json(ids).dump().c_str(),
                     Json(stops).dump().c_str(), skip);
      CHECK(right);
      ++checked;
    }
    CHECK(stopped > 500);
    std::printf("%s: %d streams equal to decode, %d of them stopped\n", name.c_str(), checked, stopped);
  }
}

TEST(stops_in_every_cut) {
  const auto t = bytes_only();
  std::mt19937 rng(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t n = below(20); n-- > 0;) text += "aab\xc3\xa9"[below(3)];
    if (below(2)) text += "\xc3\xa9";
    std::vector<std::string> stops;
    for (size_t n = below(4); n-- > 0;) {
      std::string s;
      for (size_t m = 1 + below(5); m-- > 0;) s += "ab"[below(2)];
      stops.push_back(s);
    }
    TextStream stream(*t, stops, false);
    const Cut cut = first_stop(text, stops);
    std::string out, seen;
    int stopped = -1;
    for (const int32_t id : t->encode(text, {})) {
      stopped = stream.push(id, out);
      if (stopped >= 0) break;
      seen += t->token_bytes(id, false);
      // Exactly what could still become a stop is held back, and an open code point.
      const std::string whole = seen.substr(0, utf8_valid_prefix(seen));
      CHECK(out == whole.substr(0, whole.size() - must_hold(whole, stops)));
    }
    if (stopped < 0) stream.finish(out);
    CHECK(stopped == cut.stop);
    CHECK(out == (cut.stop < 0 ? text : text.substr(0, cut.at)));
  }
}

TEST(unstopped_text_counts_but_does_not_stop) {
  const auto t = bytes_only();
  const auto ids = t->encode("xabab!", {});
  TextStream stream(*t, {"ab", "b!"}, false);
  std::string out;
  for (size_t i = 0; i < 4; ++i) stream.push_unstopped(ids[i], out);
  CHECK(out == "xab");  // an "ab" has passed; the second "a" may still begin one
  int stop = stream.push(ids[4], out);
  CHECK(stop == 0 && out == "xab");
  TextStream second(*t, {"b!"}, false);
  out.clear();
  for (size_t i = 0; i < 5; ++i) second.push_unstopped(ids[i], out);
  CHECK(out == "xaba");
  CHECK(second.push(ids[5], out) == 0);  // begun while held off, completed after
  CHECK(out == "xaba");
  second.finish(out);
  CHECK(out == "xaba" && second.push(ids[0], out) == -1 && out == "xaba");
}

TEST(open_code_points) {
  const auto t = bytes_only();
  const auto ids = t->encode("\xf0\x9f\x98\x80", {});
  CHECK(ids.size() == 4);
  TextStream stream(*t, {}, false);
  std::string out;
  for (int i = 0; i < 3; ++i) {
    stream.push(ids[static_cast<size_t>(i)], out);
    CHECK(out.empty());
  }
  stream.push(ids[3], out);
  CHECK(out == "\xf0\x9f\x98\x80");
  stream.push(ids[0], out);
  stream.push(ids[1], out);
  stream.push(256, out);  // <end>: the two bytes can become nothing now
  CHECK(out == "\xf0\x9f\x98\x80\xef\xbf\xbd<end>");
  stream.push(ids[0], out);
  stream.finish(out);
  CHECK(out == "\xf0\x9f\x98\x80\xef\xbf\xbd<end>\xef\xbf\xbd");
}

TEST(a_continuation_keeps_its_space) {
  const Tokenizer* t = load_tokenizer("llama2");
  if (!t) return;
  const auto ids = t->encode("world", {});
  std::string first, more;
  TextStream(*t, {}, true).push(ids[0], first);
  TextStream(*t, {}, true, true).push(ids[0], more);
  CHECK(first == "world" && more == " world");
}

TEST(bad_stops) {
  const auto t = bytes_only();
  CHECK_THROWS(invalid_argument, "stop string 1 is empty", TextStream(*t, {"a", ""}, false));
  CHECK_THROWS(invalid_argument, "stop string 0 is not UTF-8 at byte 1",
               TextStream(*t, {"a\xc3"}, false));
}

int main(int argc, char** argv) { return text_main(argc, argv); }
