// Taking apart what a chat model writes. Formats as the models' own templates print them: Hermes
// (NousResearch Hermes 2 Pro, Qwen 2.5 and 3), Llama 3.1 to 3.3 (JSON calls), and JSON alone.
//
// The text is read once, byte by byte where it may be a call. pos_ stands before the first byte not
// yet decided on; what is undecided stays in buffer_ (positions count from the output's start), so
// that a call that turns out to be none is read again as content from the byte after its opening.
#include "text/chat_output.h"

#include <unordered_set>

#include "text/chat_output_ends.h"
#include "text/chat_output_json.h"
#include "text/chat_output_tags.h"

namespace orlop {
namespace {

// White space that is held until what follows says whether it belongs to the content.
constexpr size_t max_space = 1024;
// Of a call before its name and arguments have begun, or of its name after its arguments.
constexpr size_t max_held = size_t{1} << 20;

using Step = JsonSteps::Step;
using Event = JsonSteps::Event;
using Kind = ChatEvent::Kind;

bool is_space(char c) { return json_space.find(c) != std::string_view::npos; }

class Parser final : public ChatOutputParser {
 public:
  explicit Parser(const ChatOutputOptions& o)
      : format_(o.tools), names_(o.names.begin(), o.names.end()), ends_(o.ends),
        think_open_(o.reasoning && o.reasoning_open),
        mode_(o.reasoning ? Mode::lead : Mode::content) {
    if (format_ == ToolFormat::hermes) tag_ = hermes_open;
    if (format_ == ToolFormat::llama3) tag_ = llama3_open;
  }

  void push(std::string_view text, std::vector<ChatEvent>& events) override {
    ends_.push(text, buffer_);
    run(events);
  }
  void finish(std::vector<ChatEvent>& events) override {
    ends_.finish(buffer_);
    final_ = true;
    run(events);
  }

 private:
  enum class Mode : uint8_t { lead, reasoning, gap, content, call, after };
  enum class Member : uint8_t { other, name, arguments };
  enum class Arguments : uint8_t { none, null, text, object };

  void run(std::vector<ChatEvent>& events);
  bool lead();
  bool reasoning();
  bool gap();
  bool content();
  bool call();
  bool after();
  void begin(uint64_t start, uint64_t body);
  bool read_brace();
  bool fail_call();
  Step read(char c);
  bool key_ended();
  bool value_began(char c);
  bool value_ended();
  void commit();
  void flush_arguments(uint64_t to);

  // ---- the text ----
  uint64_t end() const { return base_ + buffer_.size(); }
  char at(uint64_t pos) const { return buffer_[static_cast<size_t>(pos - base_)]; }
  std::string_view from(uint64_t pos) const {
    return std::string_view(buffer_).substr(static_cast<size_t>(pos - base_));
  }
  std::string_view between(uint64_t a, uint64_t b) const {
    return from(a).substr(0, static_cast<size_t>(b - a));
  }
  uint64_t skip_space(uint64_t pos) const {
    while (pos < end() && is_space(at(pos))) ++pos;
    return pos;
  }
  // Where the tag begins, or where what may become it begins, or the end.
  uint64_t seek(std::string_view tag, bool& found) const {
    const std::string_view rest = from(pos_);
    const size_t at = rest.find(tag);
    found = at != std::string_view::npos;
    if (found) return pos_ + at;
    size_t part = final_ ? 0 : std::min(tag.size() - 1, rest.size());
    while (part > 0 && !tag.starts_with(rest.substr(rest.size() - part))) --part;
    return end() - part;
  }
  bool may_become(std::string_view rest, std::string_view tag) const {
    return !final_ && rest.size() < tag.size() && tag.starts_with(rest);
  }

  // ---- what goes out ----
  void add(Kind kind, int32_t call, std::string_view text) {
    if (text.empty()) return;
    std::vector<ChatEvent>& all = *events_;
    if (all.size() > before_ && kind != Kind::tool_call && all.back().kind == kind &&
        all.back().call == call)
      all.back().text += text;
    else
      all.push_back({kind, call, std::string(text)});
  }
  void write(Kind kind, std::string_view text);
  void out(Kind kind, std::string_view text) {
    add(kind, -1, text);
    if (!text.empty()) after_call_ = false;
  }
  void flush_space(Kind kind) {
    out(kind, space_);
    drop_space();
  }
  void drop_space() {
    space_.clear();
    run_ = 0;
  }

  ToolFormat format_;
  std::unordered_set<std::string> names_;
  EndFilter ends_;
  std::string_view tag_;  // opens a call anywhere; empty: none does
  bool think_open_;
  Mode mode_;
  std::string buffer_;
  uint64_t base_ = 0;  // of buffer_
  uint64_t pos_ = 0;
  bool final_ = false;
  bool at_start_ = true;     // of the content: a bracket opens a call in llama3 and json
  bool fresh_ = true;        // of reasoning: nothing but white space so far
  bool after_call_ = false;  // no content since the last call
  std::string space_;        // of the end of the content or reasoning so far
  size_t run_ = 0;           // of white space at that end
  std::vector<ChatEvent>* events_ = nullptr;
  size_t before_ = 0;  // events of earlier pushes
  int32_t calls_ = 0;

  // ---- the call being read ----
  static constexpr uint64_t nowhere = UINT64_MAX;
  uint64_t start_ = 0, body_ = 0;  // of its opening; of what follows that
  bool array_ = false;             // it is an element of one
  bool began_ = false;             // its brace was read
  bool committed_ = false;         // told
  JsonSteps json_;
  Member member_ = Member::other;
  uint64_t key_at_ = 0, value_at_ = 0;
  uint64_t comma_at_ = nowhere;  // before the key being read, once told
  bool has_name_ = false;
  std::string name_;
  Arguments arguments_ = Arguments::none;
  bool in_arguments_ = false;
  uint64_t sent_ = 0;  // up to where the arguments were told
  std::string held_arguments_;
};

void Parser::run(std::vector<ChatEvent>& events) {
  events_ = &events;
  before_ = events.size();
  for (bool again = true; again;) {
    switch (mode_) {
      case Mode::lead: again = lead(); break;
      case Mode::reasoning: again = reasoning(); break;
      case Mode::gap: again = gap(); break;
      case Mode::content: again = content(); break;
      case Mode::call: again = call(); break;
      case Mode::after: again = after(); break;
    }
  }
  if (final_) {
    if (after_call_) drop_space();
    flush_space(mode_ == Mode::reasoning ? Kind::reasoning : Kind::content);
  }
  uint64_t keep = pos_;
  if (mode_ == Mode::call) keep = committed_ ? std::min(pos_, comma_at_) : start_;
  buffer_.erase(0, static_cast<size_t>(keep - base_));
  base_ = keep;
}

// Content or reasoning. White space at its end waits for what follows, up to a bound that counts
// from the start of the run, so that cuts make no difference.
void Parser::write(Kind kind, std::string_view text) {
  if (kind == Kind::content && format_ == ToolFormat::none) return out(kind, text);
  const size_t last = text.find_last_not_of(json_space);
  if (last != std::string_view::npos) {
    flush_space(kind);
    out(kind, text.substr(0, last + 1));
    text.remove_prefix(last + 1);
  }
  run_ += text.size();
  space_ += text;
  if (run_ > max_space) {
    out(kind, space_);
    space_.clear();
  }
}

// Before anything was written: <think> may come.
bool Parser::lead() {
  const uint64_t p = skip_space(pos_);
  if (p - pos_ <= max_space) {
    const std::string_view rest = from(p);
    if (rest.empty() && !final_) return false;
    if (may_become(rest, think_open)) return false;
    if (rest.starts_with(think_open)) {
      pos_ = p + think_open.size();
      think_open_ = true;
    }
  }
  mode_ = think_open_ ? Mode::reasoning : Mode::content;
  return true;
}

bool Parser::reasoning() {
  if (fresh_) pos_ = skip_space(pos_);
  if (pos_ == end()) return false;
  fresh_ = false;
  bool found;
  const uint64_t p = seek(think_close, found);
  write(Kind::reasoning, between(pos_, p));
  pos_ = p;
  if (!found) return false;
  pos_ += think_close.size();
  drop_space();
  mode_ = Mode::gap;
  return true;
}

bool Parser::gap() {
  pos_ = skip_space(pos_);
  if (pos_ == end()) return false;
  mode_ = Mode::content;
  return true;
}

bool Parser::content() {
  if (at_start_ && (format_ == ToolFormat::llama3 || format_ == ToolFormat::json)) {
    const uint64_t p = skip_space(pos_);
    write(Kind::content, between(pos_, p));
    pos_ = p;
    if (p == end()) return false;
    at_start_ = false;
    if (at(p) == '{' || (at(p) == '[' && format_ == ToolFormat::json)) {
      begin(p, p);
      return true;
    }
  }
  bool found = false;
  const uint64_t p = tag_.empty() ? end() : seek(tag_, found);
  write(Kind::content, between(pos_, p));
  pos_ = p;
  if (found) {
    at_start_ = false;
    begin(p, p + tag_.size());
  }
  return found;
}

void Parser::begin(uint64_t start, uint64_t body) {
  start_ = start;
  body_ = pos_ = body;
  began_ = committed_ = has_name_ = in_arguments_ = false;
  json_ = {};
  member_ = Member::other;
  comma_at_ = nowhere;
  arguments_ = Arguments::none;
  held_arguments_.clear();
  mode_ = Mode::call;
}

// It is no call. What was told stays told.
bool Parser::fail_call() {
  mode_ = Mode::content;
  array_ = false;
  if (committed_) {
    if (in_arguments_) flush_arguments(pos_);
    pos_ = std::min(pos_, comma_at_);
  } else {
    pos_ = std::max(body_, start_ + 1);
    write(Kind::content, between(start_, pos_));
  }
  return true;
}

// Up to the object's brace: whether there is one.
bool Parser::read_brace() {
  for (; pos_ < end(); ++pos_) {
    const char c = at(pos_);
    if (pos_ - start_ > max_held) return false;
    if (is_space(c)) continue;
    if (c == '[' && format_ == ToolFormat::json && !array_) {
      array_ = true;
      continue;
    }
    began_ = c == '{';
    return began_;
  }
  return !final_;
}

bool Parser::call() {
  if (!began_) {
    if (!read_brace()) return fail_call();
    if (!began_) return false;
  }
  for (; pos_ < end(); ++pos_) {
    if (!committed_ && pos_ - start_ > max_held) return fail_call();
    if (comma_at_ != nowhere && pos_ - comma_at_ > max_held) comma_at_ = nowhere;
    const Step s = read(at(pos_));
    if (s == Step::bad) return fail_call();
    if (s == Step::done) {
      ++pos_;
      mode_ = Mode::after;
      return true;
    }
  }
  if (committed_ && in_arguments_) flush_arguments(pos_);
  return final_ && !committed_ ? fail_call() : false;
}

// One byte of the object.
Step Parser::read(char c) {
  const bool inside = json_.in_string();
  const Step s = json_.step(c);
  if (s == Step::bad) return s;
  if (inside && static_cast<uint8_t>(c) < 0x20 && committed_ && in_arguments_) {
    flush_arguments(pos_);
    add(Kind::tool_arguments, calls_ - 1, control_escape(c));
    sent_ = pos_ + 1;
  }
  bool good = true;
  if (json_.level() == 1) {
    switch (json_.event()) {
      case Event::comma:
        if (committed_) comma_at_ = pos_;
        break;
      case Event::key_begin: key_at_ = pos_; break;
      case Event::key_end: good = key_ended(); break;
      case Event::value_begin: good = value_began(c); break;
      case Event::value_end: good = value_ended(); break;
      case Event::none: break;
    }
  }
  if (!good) return Step::bad;
  if (s == Step::done && !committed_) {
    // A tool without parameters is called without arguments at times.
    const bool plain = format_ == ToolFormat::hermes || !names_.empty();
    if (!has_name_ || !plain || arguments_ > Arguments::null) return Step::bad;
    commit();
    add(Kind::tool_arguments, calls_ - 1, "{}");
  }
  return s;
}

bool Parser::key_ended() {
  member_ = Member::other;
  if (committed_ && comma_at_ == nowhere) return true;  // a key too long to be kept
  std::string key;
  if (!unquote(between(key_at_, pos_ + 1), key)) key.clear();
  if (key == "name") member_ = Member::name;
  if (key == "arguments" || key == "parameters") member_ = Member::arguments;
  if (member_ == Member::name && has_name_) return false;
  if (member_ == Member::arguments && arguments_ != Arguments::none) return false;
  // An answer in JSON shall not wait for its end; a tag says that it is none.
  if (member_ == Member::other && !committed_ && format_ != ToolFormat::hermes && key != "type" &&
      key != "id")
    return false;
  comma_at_ = nowhere;
  return true;
}

bool Parser::value_began(char c) {
  value_at_ = pos_;
  if (member_ == Member::name) return c == '"';
  if (member_ == Member::other) return true;
  if (c == 'n') {
    arguments_ = Arguments::null;
  } else if (c == '"') {
    arguments_ = Arguments::text;
  } else if (c == '{') {
    arguments_ = Arguments::object;
    in_arguments_ = true;
    sent_ = pos_;
    if (has_name_) commit();
  } else {
    return false;
  }
  return true;
}

bool Parser::value_ended() {
  const std::string_view value = between(committed_ ? pos_ + 1 : value_at_, pos_ + 1);
  if (member_ == Member::name) {
    if (!unquote(value, name_) || name_.empty()) return false;
    if (!names_.empty() && !names_.contains(name_)) return false;
    has_name_ = true;
    if (arguments_ < Arguments::text) return true;
    commit();
    add(Kind::tool_arguments, calls_ - 1, held_arguments_);
    held_arguments_.clear();
  } else if (member_ == Member::arguments && arguments_ == Arguments::object) {
    in_arguments_ = false;
    if (committed_)
      flush_arguments(pos_ + 1);
    else
      held_arguments_ = escape_controls(value);
  } else if (member_ == Member::arguments) {  // JSON inside a string
    std::string text;
    if (!unquote(value, text) || !is_json_object(text)) return false;
    held_arguments_ = escape_controls(text);
    if (!has_name_) return true;
    commit();
    add(Kind::tool_arguments, calls_ - 1, held_arguments_);
    held_arguments_.clear();
  }
  return true;
}

void Parser::commit() {
  drop_space();
  committed_ = true;
  after_call_ = true;
  add(Kind::tool_call, calls_++, name_);
}

void Parser::flush_arguments(uint64_t to) {
  add(Kind::tool_arguments, calls_ - 1, between(sent_, to));
  sent_ = to;
}

// After a call: what closes it, or another one.
bool Parser::after() {
  uint64_t p = skip_space(pos_);
  if (p - pos_ > max_space) {
    mode_ = Mode::content;
    array_ = false;
    return true;
  }
  if (p == end()) {
    if (final_) pos_ = p;
    return false;
  }
  const std::string_view rest = from(p);
  const bool separator = format_ == ToolFormat::llama3 ? rest[0] == ';' : array_ && rest[0] == ',';
  if (separator) {
    const uint64_t next = skip_space(p + 1);
    if (next - p <= max_space) {
      if (next == end()) {
        if (final_) pos_ = next;
        return false;
      }
      if (at(next) == '{') return begin(pos_, next), true;
      if (!array_ && may_become(from(next), llama3_open)) return false;
      if (!array_ && from(next).starts_with(llama3_open))
        return begin(pos_, next + llama3_open.size()), true;
    }
  } else if (rest[0] == ']' && array_) {
    array_ = false;
    pos_ = p + 1;
    return true;
  } else if (!array_ && (rest[0] == '{' || (rest[0] == '[' && format_ == ToolFormat::json))) {
    return begin(pos_, p), true;
  } else if (format_ == ToolFormat::hermes) {
    if (rest.starts_with(hermes_close)) {
      pos_ = p + hermes_close.size();
    } else if (hermes_close.starts_with(rest)) {
      if (final_) pos_ = end();  // cut off
      return false;
    }
  }
  mode_ = Mode::content;
  array_ = false;
  return true;
}

}  // namespace

std::unique_ptr<ChatOutputParser> ChatOutputParser::create(const ChatOutputOptions& options) {
  return std::make_unique<Parser>(options);
}

}  // namespace orlop
