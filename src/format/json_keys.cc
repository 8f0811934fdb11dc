#include "format/json_keys.h"

namespace orlop {

double checked_number(double v, double low, double high, const std::string& file, const char* key) {
  if (!(v >= low && v <= high))
    fail(Status::bad_format, file, ": ", key, " is ", v, ", ", low, " to ", high, " is allowed");
  return v;
}

}  // namespace orlop
