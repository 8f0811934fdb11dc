// What most files of the rooms include, parsed once a room where b_pch is on (sanitized builds: see
// scripts/checks.sh). A file includes what it needs all the same.
#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>
