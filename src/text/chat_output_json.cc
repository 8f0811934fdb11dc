#include "text/chat_output_json.h"

#include <cstdio>

#include "base/json.h"

namespace orlop {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

}  // namespace

JsonSteps::Step JsonSteps::step(char c) {
  event_ = Event::none;
  switch (state_) {
    case State::value:
    case State::first_value:
      if (is_space(c)) return Step::more;
      if (c == ']' && state_ == State::first_value) return close(false);
      return value(c);
    case State::key:
    case State::first_key:
      if (is_space(c)) return Step::more;
      if (c == '}' && state_ == State::first_key) return close(true);
      if (c != '"') return Step::bad;
      state_ = State::string;
      key_ = true;
      return tell(Event::key_begin, objects_.size());
    case State::colon:
      if (is_space(c)) return Step::more;
      if (c != ':') return Step::bad;
      state_ = State::value;
      return Step::more;
    case State::after: return after(c);
    case State::string:
    case State::escape:
    case State::hex: return string(c);
    case State::word:
      if (word_.empty()) return after(c);
      if (c != word_[0]) return Step::bad;
      word_.remove_prefix(1);
      return Step::more;
    case State::end: return Step::bad;
    default: return number(c);
  }
}

JsonSteps::Step JsonSteps::value(char c) {
  if (c == '{' || c == '[') return open(c == '{');
  switch (c) {
    case '"':
      state_ = State::string;
      key_ = false;
      break;
    case '-': state_ = State::minus; break;
    case '0': state_ = State::zero; break;
    case 't': state_ = State::word, word_ = "rue"; break;
    case 'f': state_ = State::word, word_ = "alse"; break;
    case 'n': state_ = State::word, word_ = "ull"; break;
    default:
      if (!is_digit(c)) return Step::bad;
      state_ = State::integer;
  }
  return tell(Event::value_begin, objects_.size());
}

JsonSteps::Step JsonSteps::open(bool object) {
  if (objects_.size() == max_depth) return Step::bad;
  objects_.push_back(object);
  state_ = object ? State::first_key : State::first_value;
  return tell(Event::value_begin, objects_.size() - 1);
}

JsonSteps::Step JsonSteps::close(bool object) {
  if (objects_.empty() || objects_.back() != object) return Step::bad;
  objects_.pop_back();
  return closed();
}

JsonSteps::Step JsonSteps::closed() {
  tell(Event::value_end, objects_.size());
  state_ = objects_.empty() ? State::end : State::after;
  return objects_.empty() ? Step::done : Step::more;
}

JsonSteps::Step JsonSteps::after(char c) {
  if (is_space(c)) {
    state_ = State::after;
    return objects_.empty() ? Step::bad : Step::more;
  }
  if (c == '}' || c == ']') return close(c == '}');
  if (c != ',' || objects_.empty()) return Step::bad;
  state_ = objects_.back() ? State::key : State::value;
  return tell(Event::comma, objects_.size());
}

JsonSteps::Step JsonSteps::string(char c) {
  if (state_ == State::hex) {
    if (!is_hex(c)) return Step::bad;
    if (--left_ == 0) state_ = State::string;
    return Step::more;
  }
  if (state_ == State::escape) {
    if (c == 'u') {
      state_ = State::hex;
      left_ = 4;
      return Step::more;
    }
    state_ = State::string;
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? Step::bad
                                                                            : Step::more;
  }
  if (c == '\\') {
    state_ = State::escape;
  } else if (c == '"') {
    if (!key_) return closed();
    state_ = State::colon;
    return tell(Event::key_end, objects_.size());
  }
  return Step::more;
}

JsonSteps::Step JsonSteps::number(char c) {
  const bool digit = is_digit(c);
  switch (state_) {
    case State::minus:
      if (!digit) return Step::bad;
      state_ = c == '0' ? State::zero : State::integer;
      return Step::more;
    case State::zero:
    case State::integer:
      if (digit && state_ == State::integer) return Step::more;
      if (digit) return Step::bad;
      if (c == '.') return state_ = State::point, Step::more;
      if (c == 'e' || c == 'E') return state_ = State::exponent, Step::more;
      return after(c);
    case State::point:
      if (!digit) return Step::bad;
      state_ = State::fraction;
      return Step::more;
    case State::fraction:
      if (digit) return Step::more;
      if (c == 'e' || c == 'E') return state_ = State::exponent, Step::more;
      return after(c);
    case State::exponent:
      if (c == '+' || c == '-') return state_ = State::exponent_sign, Step::more;
      [[fallthrough]];
    case State::exponent_sign:
      if (!digit) return Step::bad;
      state_ = State::power;
      return Step::more;
    default:  // power
      return digit ? Step::more : after(c);
  }
}

std::string control_escape(char c) {
  switch (c) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    default: {
      char text[8];
      std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(static_cast<uint8_t>(c)));
      return text;
    }
  }
}

std::string escape_controls(std::string_view json) {
  std::string out;
  JsonSteps steps;
  size_t from = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const bool inside = steps.in_string();
    steps.step(json[i]);
    if (!inside || static_cast<uint8_t>(json[i]) >= 0x20) continue;
    out.append(json, from, i - from);
    out += control_escape(json[i]);
    from = i + 1;
  }
  return out.append(json, from);
}

bool unquote(std::string_view quoted, std::string& out) {
  const Json text = Json::parse(quoted, nullptr, false);
  if (!text.is_string()) return false;
  out = text.get<std::string>();
  return true;
}

bool is_json_object(std::string_view text) {
  const size_t begin = text.find_first_not_of(json_space);
  if (begin == std::string_view::npos || text[begin] != '{') return false;
  JsonSteps steps;
  for (size_t i = begin; i < text.size(); ++i) {
    const JsonSteps::Step s = steps.step(text[i]);
    if (s == JsonSteps::Step::bad) return false;
    if (s == JsonSteps::Step::done)
      return text.find_first_not_of(json_space, i + 1) == std::string_view::npos;
  }
  return false;
}

}  // namespace orlop
