// Takes any bytes for a model's output. The first two choose format, reasoning, names and cuts: any cut
// gives the same, what is no call is content, arguments that end well are JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_output.h"
#include "text/chat_output_json.h"

using namespace orlop;

namespace {

// Pieces of one kind and call joined.
std::vector<ChatEvent> take_apart(std::string_view text, const ChatOutputOptions& options, size_t piece) {
  const auto parser = ChatOutputParser::create(options);
  std::vector<ChatEvent> events, joined;
  for (size_t at = 0; at < text.size(); at += piece, piece = piece * 5 % 23 + 1)
    parser->push(text.substr(at, piece), events);
  parser->finish(events);
  for (const ChatEvent& e : events) {
    if (e.text.empty()) std::abort();
    if (!joined.empty() && e.kind != ChatEvent::Kind::tool_call && joined.back().kind == e.kind &&
        joined.back().call == e.call)
      joined.back().text += e.text;
    else
      joined.push_back(e);
  }
  return joined;
}

bool accepted(const std::string& json) {
  try {
    (void)Json::parse(json);
  } catch (const Json::out_of_range&) {  // a number too large
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  ChatOutputOptions o;
  o.tools = static_cast<ToolFormat>(bytes[0] & 3);
  o.reasoning = bytes[0] & 4;
  o.reasoning_open = bytes[0] & 8;
  if (bytes[0] & 16) o.names = {"f", "get_weather"};
  if (bytes[0] & 32) o.ends = {"<|im_end|>", "<|eot_id|>"};
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const auto whole = take_apart(text, o, text.size() + 1);
  const auto cut = take_apart(text, o, 1 + bytes[1] % 16);
  if (whole.size() != cut.size()) std::abort();
  for (size_t i = 0; i < whole.size(); ++i)
    if (whole[i].kind != cut[i].kind || whole[i].call != cut[i].call || whole[i].text != cut[i].text)
      std::abort();
  int32_t calls = 0;
  std::string content;
  for (const ChatEvent& e : whole) {
    if (e.kind == ChatEvent::Kind::tool_call && e.call != calls++) std::abort();
    if (e.kind == ChatEvent::Kind::tool_arguments && e.call != calls - 1) std::abort();
    if (e.kind == ChatEvent::Kind::content) content += e.text;
    // The other reader agrees, where there are neither halves of surrogate pairs (which it refuses) nor
    // bytes beyond ASCII (which it checks), nor numbers beyond a double.
    if (e.kind == ChatEvent::Kind::tool_arguments && is_json_object(e.text)) {
      bool plain = e.text.find("\\u") == std::string::npos;
      for (const char c : e.text) plain = plain && static_cast<uint8_t>(c) < 0x80;
      if (plain && !accepted(e.text)) std::abort();
    }
  }
  if (calls == 0 && !o.reasoning && o.ends.empty() && content != text) std::abort();
  return 0;
}
