// JSON objects of a checkpoint's files, read key by key: every complaint names file, key and value.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace orlop {

// A number in [low, high] (not NaN), else Error(bad_format) that names file, key and value.
double checked_number(double v, double low, double high, const std::string& file, const char* key);

// The object must outlive it. A null stands for an absent key.
class Keys {
 public:
  Keys(const Json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const std::string& file() const { return file_; }
  // The keys of an object that lies in this one as `key`.
  Keys inside(const Json& object, const std::string& key) const {
    return Keys(object, file_, prefix_ + key + ".");
  }
  // The value of a key, null when it is absent or null.
  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool states(const char* key) const { return object_.contains(key); }

  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const Json* v = find(key);
    if (!v) missing(key);
    return integer_of(*v, key, low, high);
  }
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t otherwise) const {
    const Json* v = find(key);
    return v ? integer_of(*v, key, low, high) : otherwise;
  }
  int64_t integer_of(const Json& v, const char* key, int64_t low, int64_t high) const {
    int64_t n = 0;
    if (v.is_number_unsigned()) {
      const uint64_t u = v.get<uint64_t>();
      if (u > static_cast<uint64_t>(high)) out_of_range(v, key, low, high);
      n = static_cast<int64_t>(u);
    } else if (v.is_number_integer()) {
      n = v.get<int64_t>();
    } else if (v.is_number_float()) {  // some files say 4096.0
      const double d = v.get<double>();
      if (!(std::fabs(d) < 0x1p53) || d != std::floor(d)) wrong(v, key, "a whole number");
      n = static_cast<int64_t>(d);
    } else {
      wrong(v, key, "a whole number");
    }
    if (n < low || n > high) out_of_range(v, key, low, high);
    return n;
  }
  double number(const char* key, double low, double high) const {
    const Json* v = find(key);
    if (!v) missing(key);
    return number_of(*v, key, low, high);
  }
  double number(const char* key, double low, double high, double otherwise) const {
    const Json* v = find(key);
    return v ? number_of(*v, key, low, high) : otherwise;
  }
  bool boolean(const char* key, bool otherwise) const {
    const Json* v = find(key);
    if (!v) return otherwise;
    if (!v->is_boolean()) wrong(*v, key, "true or false");
    return v->get<bool>();
  }
  std::string text(const char* key, const char* otherwise) const {
    const Json* v = find(key);
    if (!v) return otherwise;
    if (!v->is_string()) wrong(*v, key, "a string");
    return v->get<std::string>();
  }
  [[noreturn]] void wrong(const Json& v, const char* key, const char* wanted) const {
    fail(Status::bad_format, name(key), " is ", show(v), ", ", wanted, " is needed");
  }
  [[noreturn]] void missing(const char* key) const {
    fail(Status::bad_format, name(key), " is missing");
  }
  // "FILE: PREFIX.KEY"
  std::string name(const char* key) const { return cat(file_, ": ", prefix_, key); }

  static std::string show(const Json& v) {
    std::string s = v.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (s.size() > 80) s = s.substr(0, 80) + "...";
    return s;
  }

 private:
  double number_of(const Json& v, const char* key, double low, double high) const {
    if (!v.is_number()) wrong(v, key, "a number");
    return checked_number(v.get<double>(), low, high, file_, cat(prefix_, key).c_str());
  }
  [[noreturn]] void out_of_range(const Json& v, const char* key, int64_t low, int64_t high) const {
    fail(Status::bad_format, name(key), " is ", show(v), ", ", low, " to ", high, " is allowed");
  }

  const Json& object_;
  std::string file_, prefix_;
};

}  // namespace orlop
