// JSON, one byte at a time (RFC 8259): checked and its members found while it still arrives. Of use
// where a model writes JSON and nobody knows yet whether it will end well. One leniency, because
// models do so: strings may hold control characters; escape_controls makes JSON of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orlop {

class JsonSteps {
 public:
  static constexpr size_t max_depth = 256;

  enum class Step : uint8_t { more, done, bad };
  // What the last byte was. A scalar's end shows with the byte after it, so it is not told.
  enum class Event : uint8_t { none, key_begin, key_end, value_begin, value_end, comma };

  // One value whose end shows in itself: an object, an array or a string. Nothing after done or bad.
  Step step(char c);
  Event event() const { return event_; }
  // How many containers are open around what the event is about.
  size_t level() const { return level_; }
  bool in_string() const { return state_ == State::string; }

 private:
  enum class State : uint8_t {
    value, first_value, key, first_key, colon, after, string, escape, hex,
    minus, zero, integer, point, fraction, exponent, exponent_sign, power, word, end,
  };
  Step value(char c);
  Step after(char c);
  Step string(char c);
  Step number(char c);
  Step open(bool object);
  Step close(bool object);
  Step closed();
  Step tell(Event event, size_t level) {
    event_ = event;
    level_ = level;
    return Step::more;
  }

  std::vector<bool> objects_;  // of the open containers: whether it is an object
  State state_ = State::value;
  Event event_ = Event::none;
  size_t level_ = 0;
  bool key_ = false;           // the string is a key
  uint8_t left_ = 0;           // hexadecimal digits to come
  std::string_view word_;      // what must follow of true, false, null
};

// Control characters inside the strings of well-formed JSON, escaped.
std::string escape_controls(std::string_view json);
std::string control_escape(char c);  // \n, …
// The text of a JSON string with its quotes; false if it is none.
bool unquote(std::string_view quoted, std::string& out);
// Whether the text is one JSON object, white space around it allowed.
bool is_json_object(std::string_view text);

constexpr std::string_view json_space = " \t\n\r";

}  // namespace orlop
