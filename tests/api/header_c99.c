/* The header alone, as strict C99. */
#include "orlop/orlop.h"

/* Pinned: layouts that callers compiled against. */
typedef char error_size[sizeof(orlop_error) == 512 ? 1 : -1];
typedef char output_tail[sizeof(orlop_output) % 8 == 0 ? 1 : -1];

int main(void) {
  orlop_generate_params p;
  orlop_generate_params_init(&p, sizeof p);
  return !(p.struct_size == sizeof p && p.n == 1 && p.top_k == ORLOP_UNSET_I32 &&
           sizeof(error_size) == 1 && sizeof(output_tail) == 1);
}
