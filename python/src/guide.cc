#include "guide.h"

#include "errors.h"
#include "gil.h"
#include "params.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace orlop_py {
namespace {

nb::tuple guide_check(int32_t kind, nb::handle source, const nb::bytes& text) {
  const auto [data, len] = to_utf8(source, "guide");
  uint64_t accepted = 0;
  int32_t complete = 0;
  orlop_error error = new_error();
  check(without_gil([&, data = data, len = len]() noexcept {
          return orlop_guide_check(kind, data, len, text.c_str(), text.size(), &accepted, &complete, &error);
        }),
        error);
  return nb::make_tuple(accepted, complete != 0);
}

}  // namespace

void bind_guide(nb::module_& m) {
  m.def("guide_check", &guide_check, "kind"_a, "source"_a, "text"_a,
        nb::sig("def guide_check(kind: int, source: str, text: bytes) -> tuple[int, bool]"),
        "How far a text follows a guide: (bytes, complete).");
}

}  // namespace orlop_py
