// What a parser of chat output gave, as one line: R[reasoning] C[content] T0:name A0[arguments], pieces
// of one kind joined.
#pragma once
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_output.h"

namespace orlop::test {

class Seen {
 public:
  void add(const std::vector<ChatEvent>& events) {
    for (const ChatEvent& e : events) {
      const bool goes_on = !events_.empty() && e.kind != ChatEvent::Kind::tool_call &&
                           events_.back().kind == e.kind && events_.back().call == e.call;
      if (goes_on)
        events_.back().text += e.text;
      else
        events_.push_back(e);
    }
  }
  std::string line() const {
    std::string out;
    for (const ChatEvent& e : events_) {
      switch (e.kind) {
        case ChatEvent::Kind::reasoning: out += "R[" + e.text + "]"; break;
        case ChatEvent::Kind::content: out += "C[" + e.text + "]"; break;
        case ChatEvent::Kind::tool_call: out += cat("T", e.call, ":", e.text); break;
        case ChatEvent::Kind::tool_arguments: out += cat("A", e.call, "[", e.text, "]"); break;
      }
    }
    return out;
  }
  std::string text_of(ChatEvent::Kind kind, int32_t call = -1) const {
    std::string out;
    for (const ChatEvent& e : events_)
      if (e.kind == kind && e.call == call) out += e.text;
    return out;
  }
  std::string content() const { return text_of(ChatEvent::Kind::content); }
  // Name and arguments of each.
  std::vector<std::pair<std::string, std::string>> calls() const {
    std::vector<std::pair<std::string, std::string>> out;
    for (const ChatEvent& e : events_)
      if (e.kind == ChatEvent::Kind::tool_call)
        out.emplace_back(e.text, text_of(ChatEvent::Kind::tool_arguments, e.call));
    return out;
  }

 private:
  std::vector<ChatEvent> events_;
};

// The text in pieces of at most `most` bytes (0: whole), of random sizes with a seed.
inline Seen take_apart(std::string_view text, const ChatOutputOptions& options, size_t most = 0,
                       std::mt19937_64* random = nullptr) {
  const auto parser = ChatOutputParser::create(options);
  Seen seen;
  while (!text.empty()) {
    size_t n = most ? std::min(most, text.size()) : text.size();
    if (random) n = 1 + (*random)() % n;
    std::vector<ChatEvent> events;
    parser->push(text.substr(0, n), events);
    seen.add(events);
    text.remove_prefix(n);
  }
  std::vector<ChatEvent> events;
  parser->finish(events);
  seen.add(events);
  return seen;
}

}  // namespace orlop::test
