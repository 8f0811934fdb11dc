#include "output.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <limits>

#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace orlop_py {
namespace {

std::shared_ptr<LogprobTable> copy_table(const orlop_logprob* data, uint64_t rows,
                                         uint64_t columns) {
  if (!data || columns == 0) return nullptr;
  auto table = std::make_shared<LogprobTable>();
  table->rows = static_cast<size_t>(rows);
  table->columns = static_cast<size_t>(columns);
  table->entries.assign(data, data + rows * columns);
  return table;
}

template <class T>
nb::list to_list(const std::vector<T>& values) {
  nb::list out;
  for (const T& value : values) out.append(value);
  return out;
}

nb::str decode(const std::string& text) {
  nb::object out = nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  if (!out.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(out);
}

size_t row_index(const LogprobTable& table, int64_t row) {
  const auto rows = static_cast<int64_t>(table.rows);
  if (row < -rows || row >= rows) throw nb::index_error("row out of range");
  return static_cast<size_t>(row < 0 ? row + rows : row);
}

nb::list table_row(const LogprobTable& table, int64_t index) {
  const size_t row = row_index(table, index);
  nb::list out;
  for (size_t i = 0; i < table.columns; ++i) {
    const orlop_logprob& entry = table.entries[row * table.columns + i];
    out.append(nb::make_tuple(entry.token, entry.logprob));
  }
  return out;
}

// One row scattered to token order: [vocab], -inf for tokens that the table does not hold.
nb::object table_by_token(const LogprobTable& table, int64_t index, size_t vocab) {
  const size_t row = row_index(table, index);
  const orlop_logprob* entries = table.entries.data() + row * table.columns;
  if (vocab == 0) vocab = table.columns;
  auto* values = new std::vector<float>(vocab, -std::numeric_limits<float>::infinity());
  nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  for (size_t i = 0; i < table.columns; ++i) {
    const int32_t token = entries[i].token;
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      throw nb::value_error("vocab is smaller than a token id of the table");
    }
    (*values)[static_cast<size_t>(token)] = entries[i].logprob;
  }
  return nb::cast(nb::ndarray<nb::memview, float, nb::ndim<1>>(values->data(), {vocab}, owner));
}

std::shared_ptr<LogprobTable> concat(const nb::sequence& tables) {
  auto out = std::make_shared<LogprobTable>();
  for (nb::handle item : tables) {
    const auto part = nb::cast<std::shared_ptr<LogprobTable>>(item);
    if (out->rows != 0 && part->columns != out->columns) {
      throw nb::value_error("the tables differ in columns");
    }
    out->columns = part->columns;
    out->rows += part->rows;
    out->entries.insert(out->entries.end(), part->entries.begin(), part->entries.end());
  }
  return out;
}

nb::object or_none(const std::shared_ptr<LogprobTable>& table) {
  return table ? nb::cast(table) : nb::none();
}
nb::object or_none(bool present, const std::vector<float>& values) {
  return present ? nb::object(to_list(values)) : nb::none();
}
nb::object or_none(int32_t value) { return value >= 0 ? nb::object(nb::int_(value)) : nb::none(); }

}  // namespace

const char* finish_name(int32_t finish_reason) {
  switch (finish_reason) {
    case ORLOP_FINISH_STOP: return "stop";
    case ORLOP_FINISH_LENGTH: return "length";
    case ORLOP_FINISH_CANCELLED: return "cancelled";
    case ORLOP_FINISH_ERROR: return "error";
    default: return nullptr;
  }
}

Output::Output(const orlop_output& out)
    : text(out.text ? out.text : "", out.text ? static_cast<size_t>(out.text_len) : 0),
      tokens(out.tokens, out.tokens + (out.tokens ? out.n_tokens : 0)),
      finish_reason(out.finish_reason),
      error_code(out.error_code),
      stop_token(out.stop_token),
      stop_index(out.stop_index),
      index(out.index),
      message(out.message ? out.message : "",
              out.message ? static_cast<size_t>(out.message_len) : 0),
      has_logprobs(out.logprobs != nullptr),
      has_prompt_logprobs(out.prompt_logprobs != nullptr),
      logprobs(out.logprobs, out.logprobs + (out.logprobs ? out.n_tokens : 0)),
      prompt_logprobs(out.prompt_logprobs,
                      out.prompt_logprobs + (out.prompt_logprobs ? out.n_prompt : 0)),
      embedding(out.embedding, out.embedding + (out.embedding ? out.n_embedding : 0)),
      top(copy_table(out.top_logprobs, out.n_tokens, out.n_top)),
      prompt_top(copy_table(out.prompt_top_logprobs, out.n_prompt, out.n_prompt_top)) {}

void bind_output(nb::module_& m) {
  nb::class_<LogprobTable>(m, "LogprobTable",
                           "The most likely tokens of several positions, held in compact form. "
                           "table[i] is a list of (token id, logprob) tuples, best first; "
                           "natural logarithms of the raw model distribution.")
      .def("__len__", [](const LogprobTable& t) { return t.rows; })
      .def("__getitem__", &table_row, "row"_a,
           nb::sig("def __getitem__(self, row: int, /) -> list[tuple[int, float]]"))
      .def_prop_ro(
          "shape", [](const LogprobTable& t) { return nb::make_tuple(t.rows, t.columns); },
          nb::sig("def shape(self) -> tuple[int, int]"), "(positions, tokens a position).")
      .def("by_token", &table_by_token, "row"_a, "vocab"_a = 0,
           nb::sig("def by_token(self, row: int, vocab: int = 0) -> memoryview"),
           "Row as a float32 memoryview [vocab] in the order of token ids; -inf where the table "
           "has no entry. vocab 0: as many as the row has entries (logprobs=-1).")
      .def_static("concat", &concat, "tables"_a,
                  nb::sig("def concat(tables: collections.abc.Sequence[LogprobTable]) -> LogprobTable"),
                  "One table with the rows of all.");

  nb::class_<Output>(m, "Output",
                     "What a request produced since the last output. Text is whole code points and "
                     "may lag behind the tokens.")
      .def_prop_ro(
          "text", [](const Output& o) { return decode(o.text); },
          nb::sig("def text(self) -> str"), "New text.")
      .def_prop_ro(
          "tokens", [](const Output& o) { return to_list(o.tokens); },
          nb::sig("def tokens(self) -> list[int]"), "New token ids.")
      .def_prop_ro(
          "finish_reason",
          [](const Output& o) -> nb::object {
            const char* name = finish_name(o.finish_reason);
            return name ? nb::object(nb::str(name)) : nb::none();
          },
          nb::sig("def finish_reason(self) -> str | None"),
          "'stop', 'length', 'cancelled', 'error', or None while more follows.")
      .def_ro("index", &Output::index, "Which of the n samples this belongs to.")
      .def_prop_ro(
          "logprobs", [](const Output& o) { return or_none(o.has_logprobs, o.logprobs); },
          nb::sig("def logprobs(self) -> list[float] | None"),
          "Logprob of each new token, if asked for.")
      .def_prop_ro(
          "top_logprobs", [](const Output& o) { return or_none(o.top); },
          nb::sig("def top_logprobs(self) -> LogprobTable | None"),
          "The most likely tokens at each new token, if asked for.")
      .def_prop_ro(
          "prompt_logprobs",
          [](const Output& o) { return or_none(o.has_prompt_logprobs, o.prompt_logprobs); },
          nb::sig("def prompt_logprobs(self) -> list[float] | None"),
          "Logprob of each prompt token given those before it (entry 0 is 0); in one output only.")
      .def_prop_ro(
          "prompt_top_logprobs", [](const Output& o) { return or_none(o.prompt_top); },
          nb::sig("def prompt_top_logprobs(self) -> LogprobTable | None"),
          "The most likely tokens at each prompt position; row 0 is all zero.")
      .def_prop_ro(
          "stop_token", [](const Output& o) { return or_none(o.stop_token); },
          nb::sig("def stop_token(self) -> int | None"), "The token id that ended the request.")
      .def_prop_ro(
          "stop_index", [](const Output& o) { return or_none(o.stop_index); },
          nb::sig("def stop_index(self) -> int | None"),
          "The index of the stop string that ended the request.")
      .def_prop_ro(
          "embedding", [](const Output& o) { return or_none(!o.embedding.empty(), o.embedding); },
          nb::sig("def embedding(self) -> list[float] | None"),
          "The prompt's embedding, of length 1, if asked for; in the last output.")
      .def_ro("error_code", &Output::error_code, "With finish_reason 'error': the status code.")
      .def_prop_ro(
          "message", [](const Output& o) { return decode(o.message); },
          nb::sig("def message(self) -> str"), "With finish_reason 'error': why.")
      .def("__repr__", [](const Output& o) {
        const char* name = finish_name(o.finish_reason);
        nb::object text = nb::steal(PyObject_Repr(decode(o.text).ptr()));
        if (!text.is_valid()) throw nb::python_error();
        return nb::str("Output(text={}, tokens={}, finish_reason={})")
            .format(text, o.tokens.size(), name ? name : "None");
      });
}

}  // namespace orlop_py
