// The header alone, as strict C++17.
#include "orlop/orlop.h"

#include <type_traits>

static_assert(std::is_trivially_copyable_v<orlop_generate_params>);
static_assert(std::is_standard_layout_v<orlop_output>);
static_assert(std::is_same_v<decltype(&orlop_cancel), void (*)(orlop_request*)>);

int main() {
  return orlop_abi_version() >> 16 != ORLOP_ABI_MAJOR;
}
