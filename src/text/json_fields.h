// Members of hostile JSON objects with their types checked: Error(bad_format) names the member.
#pragma once
#include <cstdint>
#include <string>

#include "base/checked.h"
#include "base/json.h"

namespace orlop::json_fields {

// An absent or null member is the default.
inline bool flag(const Json& j, const char* key, bool otherwise, const std::string& where) {
  const auto it = j.find(key);
  if (it == j.end() || it->is_null()) return otherwise;
  if (!it->is_boolean()) fail(Status::bad_format, where, ".", key, ": true or false is expected");
  return it->get<bool>();
}
inline std::string text(const Json& j, const char* key, const std::string& where) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_string())
    fail(Status::bad_format, where, ".", key, ": a string is expected");
  return it->get<std::string>();
}
inline int32_t number(const Json& j, const char* key, const std::string& where) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_number_integer())
    fail(Status::bad_format, where, ".", key, ": an integer is expected");
  if (it->is_number_unsigned()) return checked_cast<int32_t>(it->get<uint64_t>(), key);
  return checked_cast<int32_t>(it->get<int64_t>(), key);
}
inline const Json& list(const Json& j, const char* key, const std::string& where) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_array())
    fail(Status::bad_format, where, ".", key, ": a list is expected");
  return *it;
}
inline const Json& object(const Json& j, const std::string& where) {
  if (!j.is_object()) fail(Status::bad_format, where, ": an object is expected");
  return j;
}
inline bool absent(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it == j.end() || it->is_null();
}

}  // namespace orlop::json_fields
