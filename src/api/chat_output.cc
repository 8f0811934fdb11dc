// orlop_chat_output_*: what a chat model writes, taken apart.
#include "text/chat_output.h"

#include <algorithm>

#include "api/core.h"
#include "text/utf8.h"

using namespace orlop;
using namespace orlop::api;

struct orlop_chat_output {
  std::unique_ptr<ChatOutputParser> parser;
  std::string cut;  // the bytes of a code point whose end is still to come
  bool ended = false;
  std::atomic<bool> busy{false};
};

namespace {

constexpr JsonLimits limits{.max_depth = 256, .max_bytes = size_t{64} << 20};

OrderedJson read_object(std::string_view json) {
  if (json.empty()) return OrderedJson::object();
  OrderedJson given;
  try {
    given = parse_ordered_json(json, "chat output", limits);
  } catch (const Error& e) {
    throw Error(e.status() == Status::bad_format ? Status::invalid_argument : e.status(), e.text());
  }
  if (!given.is_object())
    fail(Status::invalid_argument, "chat output: must be a JSON object, got ", given.type_name());
  return given;
}

// What an engine is asked when a value is "auto".
class Known {
 public:
  explicit Known(orlop_engine* engine) {
    if (engine) core_ = Hold<orlop_engine>(engine, "engine")->core();
  }
  const std::string& chat_template(const char* key) const {
    if (!core_)
      fail(Status::invalid_argument, key,
           ": \"auto\" asks the engine's chat template, and engine is NULL");
    return core_->vocabulary().template_text();
  }
  std::vector<std::string> ends() const {
    const auto known = Vocabulary::end_texts();
    std::vector<std::string> texts(known.begin(), known.end());
    if (!core_) return texts;
    const Tokenizer* tokenizer = core_->vocabulary().tokenizer_or_null();
    for (const int32_t id : core_->end_tokens())
      if (tokenizer && id < tokenizer->vocab_size() && tokenizer->is_special(id))
        texts.emplace_back(tokenizer->token_bytes(id, false));
    return texts;
  }

 private:
  std::shared_ptr<Core> core_;
};

std::string text_of(const OrderedJson& value, const char* key) {
  if (!value.is_string())
    fail(Status::invalid_argument, key, ": must be a string, got ", value.type_name());
  return value.get<std::string>();
}

ChatOutputOptions read_options(const OrderedJson& given, const Known& known) {
  static const std::vector<std::string_view> keys = {"tools", "format", "reasoning", "prompt"};
  for (const auto& [key, value] : given.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      const std::string near = nearest_key(key, keys);
      fail(Status::invalid_argument, "chat output: unknown key ", in_quotes(key),
           near.empty() ? "" : "; did you mean \"" + near + "\"?");
    }
  const auto value = [&](const char* key) {
    const auto found = given.find(key);
    return found == given.end() ? OrderedJson() : *found;
  };
  ChatOutputOptions o;
  const OrderedJson tools = value("tools");
  if (!tools.is_null()) o.names = tool_names(tools);
  const OrderedJson format = value("format");
  const std::string name = format.is_null() ? "auto" : text_of(format, "format");
  if (name == "auto") {
    if (!o.names.empty()) o.tools = template_tool_format(known.chat_template("format"));
  } else if (const auto named = tool_format(name)) {
    // A list without tools allows no call; no list allows any.
    if (tools.is_null() || !o.names.empty()) o.tools = *named;
  } else {
    fail(Status::invalid_argument,
         "format: must be \"auto\", \"hermes\", \"llama3\", \"json\" or \"none\", got \"",
         name.substr(0, 100), "\"");
  }
  const OrderedJson reasoning = value("reasoning");
  if (reasoning.is_boolean())
    o.reasoning = reasoning.get<bool>();
  else if (reasoning.is_null() || reasoning == "auto")
    o.reasoning = template_has_reasoning(known.chat_template("reasoning"));
  else
    fail(Status::invalid_argument, "reasoning: must be true, false or \"auto\"");
  const OrderedJson prompt = value("prompt");
  if (!prompt.is_null()) o.reasoning_open = leaves_reasoning_open(text_of(prompt, "prompt"));
  o.ends = known.ends();
  return o;
}

// The part that is whole code points; the bytes of a cut one are kept for the next push. Bytes that
// are no UTF-8 become U+FFFD.
std::string whole(orlop_chat_output& output, std::string_view text, bool last) {
  std::string all = std::move(output.cut);
  output.cut.clear();
  all += text;
  std::string out;
  for (size_t at = 0; at < all.size();) {
    const size_t good = at + utf8_valid_prefix(std::string_view(all).substr(at));
    out.append(all, at, good - at);
    if (good == all.size()) break;
    const Utf8Step step = utf8_step(all, good);
    if (step.cut && !last) {
      output.cut = all.substr(good);
      break;
    }
    out += utf8_replacement;
    at = good + step.length;
  }
  return out;
}

std::string events_json(const std::vector<ChatEvent>& events) {
  OrderedJson all = OrderedJson::array();
  for (const ChatEvent& e : events) {
    OrderedJson one;
    switch (e.kind) {
      case ChatEvent::Kind::reasoning: one = {{"type", "reasoning"}, {"text", e.text}}; break;
      case ChatEvent::Kind::content: one = {{"type", "content"}, {"text", e.text}}; break;
      case ChatEvent::Kind::tool_call:
        one = {{"type", "tool_call"}, {"index", e.call}, {"name", e.text}};
        break;
      case ChatEvent::Kind::tool_arguments:
        one = {{"type", "tool_arguments"}, {"index", e.call}, {"text", e.text}};
        break;
    }
    all.push_back(std::move(one));
  }
  return all.dump();
}

class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag.exchange(true)) fail(Status::busy, "output: another thread is in a push");
  }
  ~Busy() { flag_.store(false); }
  Busy(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

int32_t orlop_chat_output_create(orlop_engine* engine, const char* json, size_t len,
                                 orlop_chat_output** out, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(out, "out");
    const Known known(engine);
    const OrderedJson given = read_object(utf8_in(json, len, "json"));
    auto output = std::make_unique<orlop_chat_output>();
    output->parser = ChatOutputParser::create(read_options(given, known));
    *out = output.release();
    return Status::ok;
  });
}

int32_t orlop_chat_output_push(orlop_chat_output* output, const char* text, size_t len,
                               int32_t last, orlop_buffer** events, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(events, "events");
    if (!output) fail(Status::invalid_argument, "output: is NULL");
    const std::string_view in = text_in(text, len, "text");
    if (last != 0 && last != 1) fail(Status::invalid_argument, "last: must be 0 or 1, got ", last);
    const Busy busy(output->busy);
    if (output->ended) fail(Status::invalid_argument, "output: its last text was pushed");
    std::vector<ChatEvent> found;
    output->parser->push(whole(*output, in, last == 1), found);
    if (last) {
      output->ended = true;
      output->parser->finish(found);
    }
    *events = new_buffer(events_json(found));
    return Status::ok;
  });
}

void orlop_chat_output_release(orlop_chat_output* output) { delete output; }
