#include "params.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "errors.h"

namespace nb = nanobind;

namespace orlop_py {
namespace {

std::string kind_of(nb::handle value) { return Py_TYPE(value.ptr())->tp_name; }

std::string shown(nb::handle value) {
  nb::object text = nb::steal(PyObject_Repr(value.ptr()));
  const char* utf8 = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (!utf8) {  // e.g. an int too long to print
    PyErr_Clear();
    return "a value of type " + kind_of(value);
  }
  std::string out = utf8;
  if (out.size() > 60) out = out.substr(0, 57) + "...";
  return out;
}

[[noreturn]] void bad_value(const std::string& name, const std::string& rule, nb::handle value) {
  raise_error(ORLOP_E_INVALID_ARGUMENT, name + " must be " + rule + ", got " + shown(value));
}
[[noreturn]] void bad_type(const std::string& name, const char* wanted, nb::handle value) {
  raise_type_error(name + " must be " + wanted + ", not " + kind_of(value));
}

bool is_bool(nb::handle value) { return PyBool_Check(value.ptr()); }

nb::object to_index(const std::string& name, nb::handle value) {
  if (is_bool(value) || !PyIndex_Check(value.ptr())) bad_type(name, "an integer", value);
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return index;
}

int64_t to_int(const std::string& name, nb::handle value, int64_t low, int64_t high) {
  nb::object index = to_index(name, value);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || number < low || number > high) {
    bad_value(name, "from " + std::to_string(low) + " to " + std::to_string(high), value);
  }
  return number;
}

uint64_t to_u64(const std::string& name, nb::handle value) {
  nb::object index = to_index(name, value);
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
    PyErr_Clear();
    bad_value(name, "from 0 to 18446744073709551615", value);
  }
  return number;
}

double to_double(const std::string& name, nb::handle value) {
  if (is_bool(value) || PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
    bad_type(name, "a number", value);
  }
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred()) {
    const bool overflow = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (overflow) bad_value(name, "a number that a double can hold", value);
    bad_type(name, "a number", value);
  }
  return number;
}

// A finite double other than the mark for "unset".
double to_finite(const std::string& name, nb::handle value) {
  const double number = to_double(name, value);
  if (!std::isfinite(number)) bad_value(name, "a finite number", value);
  if (number <= ORLOP_UNSET_F64) bad_value(name, "above -1e300", value);
  return number;
}

bool to_bool(const std::string& name, nb::handle value) {
  if (!is_bool(value)) bad_type(name, "True or False", value);
  return value.ptr() == Py_True;
}

using Setter = void (*)(Params&, const char* name, nb::handle value);

template <double orlop_generate_params::* field>
void set_double(Params& p, const char* name, nb::handle value) {
  p.c.*field = to_finite(name, value);
}
template <uint32_t orlop_generate_params::* field>
void set_u32(Params& p, const char* name, nb::handle value) {  // the largest value means "unset"
  p.c.*field = static_cast<uint32_t>(to_int(name, value, 0, int64_t{ORLOP_UNSET_U32} - 1));
}
template <int32_t orlop_generate_params::* field>
void set_logprobs(Params& p, const char* name, nb::handle value) {  // -2 means "off": None here
  p.c.*field = static_cast<int32_t>(to_int(name, value, ORLOP_LOGPROBS_ALL, INT32_MAX));
}
template <uint32_t bit, bool inverted>
void set_flag(Params& p, const char* name, nb::handle value) {
  if (to_bool(name, value) != inverted) {
    p.c.flags |= bit;
  } else {
    p.c.flags &= ~bit;
  }
}

void set_top_k(Params& p, const char* name, nb::handle value) {
  p.c.top_k = static_cast<int32_t>(to_int(name, value, 0, INT32_MAX));
}
void set_seed(Params& p, const char* name, nb::handle value) {
  p.c.seed = to_u64(name, value);
  p.c.flags |= ORLOP_GENERATE_SEEDED;
}

void set_cache_salt(Params& p, const char* name, nb::handle value) {
  const auto [data, len] = to_utf8(value, name);
  p.cache_salt.assign(data, len);
  p.c.cache_salt = p.cache_salt.data();
  p.c.cache_salt_len = p.cache_salt.size();
}
void set_priority(Params& p, const char* name, nb::handle value) {
  p.c.priority = static_cast<int32_t>(to_int(name, value, -100, 100));
}
void set_deadline(Params& p, const char* name, nb::handle value) {
  const double seconds = to_double(name, value);
  if (!(seconds > 0)) bad_value(name, "None or seconds above 0", value);
  const double us = std::ceil(seconds * 1e6);
  p.c.deadline_us = us >= 9e18 ? INT64_MAX : static_cast<int64_t>(us);
}

// _guide.to_native's pair: kind, source.
void set_guide(Params& p, const char* name, nb::handle value) {
  if (!PyTuple_Check(value.ptr()) || PyTuple_GET_SIZE(value.ptr()) != 2) bad_type(name, "a dict", value);
  p.c.guide = static_cast<int32_t>(to_int(name, PyTuple_GET_ITEM(value.ptr(), 0), 0, INT32_MAX));
  const auto [data, len] = to_utf8(PyTuple_GET_ITEM(value.ptr(), 1), name);
  p.guide_source.assign(data, len);
  p.c.guide_source = p.guide_source.data();
  p.c.guide_source_len = p.guide_source.size();
}
void set_embedding(Params& p, const char* name, nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) bad_type(name, "a str", value);
  const auto [data, len] = to_utf8(value, name);
  const std::string pooling(data, len);
  if (pooling != "mean" && pooling != "last") bad_value(name, "'mean' or 'last'", value);
  p.c.embedding = pooling == "mean" ? ORLOP_EMBEDDING_MEAN : ORLOP_EMBEDDING_LAST;
}

void set_logit_bias(Params& p, const char* name, nb::handle value) {
  if (!PyDict_Check(value.ptr())) bad_type(name, "a dict of token id to bias", value);
  nb::dict biases = nb::borrow<nb::dict>(value);
  p.logit_bias.reserve(biases.size());
  for (auto [key, bias] : biases) {
    const int64_t token = to_int(std::string(name) + " key", key, 0, INT32_MAX);
    const std::string entry = std::string(name) + "[" + std::to_string(token) + "]";
    const double number = to_double(entry, bias);
    const bool forbid = std::isinf(number) && number < 0;
    if (!forbid && !(std::abs(number) <= static_cast<double>(FLT_MAX))) {
      bad_value(entry, "a finite float32 or -inf", bias);
    }
    p.logit_bias.push_back({static_cast<int32_t>(token), static_cast<float>(number)});
  }
  p.c.logit_bias = p.logit_bias.data();
  p.c.n_logit_bias = p.logit_bias.size();
}

void set_stop(Params& p, const char* name, nb::handle value) {
  const char* wanted = "a str or a list of str";
  if (PyUnicode_Check(value.ptr())) {
    const auto [data, len] = to_utf8(value, name);
    p.stop_text.emplace_back(data, len);
  } else {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) bad_type(name, wanted, value);
    for (nb::handle item : nb::borrow<nb::sequence>(value)) {
      if (!PyUnicode_Check(item.ptr())) bad_type(name, wanted, item);
      const auto [data, len] = to_utf8(item, name);
      p.stop_text.emplace_back(data, len);
    }
  }
  for (const std::string& text : p.stop_text) p.stop.push_back({text.data(), text.size()});
  p.c.stop = p.stop.data();
  p.c.n_stop = p.stop.size();
}

void set_stop_tokens(Params& p, const char* name, nb::handle value) {
  if (p.c.stop_tokens) raise_type_error("give stop_tokens or stop_token_ids, not both");
  p.stop_tokens_name = name;
  p.stop_tokens = to_ids(value, name);
  p.c.stop_tokens = p.stop_tokens.data();
  p.c.n_stop_tokens = p.stop_tokens.size();
}

using G = orlop_generate_params;
constexpr struct {
  const char* name;
  Setter set;
} fields[] = {
    {"max_tokens", set_u32<&G::max_tokens>},
    {"min_tokens", set_u32<&G::min_tokens>},
    {"temperature", set_double<&G::temperature>},
    {"top_k", set_top_k},
    {"top_p", set_double<&G::top_p>},
    {"min_p", set_double<&G::min_p>},
    {"repetition_penalty", set_double<&G::repetition_penalty>},
    {"presence_penalty", set_double<&G::presence_penalty>},
    {"frequency_penalty", set_double<&G::frequency_penalty>},
    {"seed", set_seed},
    {"logit_bias", set_logit_bias},
    {"stop", set_stop},
    {"stop_tokens", set_stop_tokens},
    {"stop_token_ids", set_stop_tokens},  // the name that other engines use
    {"ignore_eos", set_flag<ORLOP_GENERATE_IGNORE_EOS, false>},
    {"logprobs", set_logprobs<&G::logprobs>},
    {"prompt_logprobs", set_logprobs<&G::prompt_logprobs>},
    {"n", set_u32<&G::n>},
    {"cache_salt", set_cache_salt},
    {"priority", set_priority},
    {"deadline", set_deadline},
    {"add_bos", set_flag<ORLOP_GENERATE_NO_BOS, true>},
    {"parse_special", set_flag<ORLOP_GENERATE_PLAIN, true>},
    {"guide", set_guide},
    {"embedding", set_embedding},
    {"keep_special", set_flag<ORLOP_GENERATE_KEEP_SPECIAL, false>},
};

[[noreturn]] void unknown_name(const std::string& name) {
  nb::list known;
  for (const auto& field : fields) known.append(field.name);
  for (const char* other : {"tokens", "messages", "tools", "add_generation_prompt",
                            "template_vars"}) {
    known.append(other);
  }
  nb::object near = nb::module_::import_("difflib").attr("get_close_matches")(name.c_str(), known, 1);
  std::string text = "unknown parameter '" + name + "'";
  if (nb::len(near) != 0) {
    text += "; did you mean '" + std::string(nb::cast<nb::str>(near[0]).c_str()) + "'?";
  } else {
    text += "; known are:";
    for (const auto& field : fields) text += std::string(" ") + field.name;
  }
  raise_type_error(text);
}

}  // namespace

void Params::set(const nb::dict& values) {
  for (auto [key, value] : values) {
    const auto [data, len] = to_utf8(key, "a parameter's name");
    const std::string name(data, len);
    bool found = false;
    for (const auto& field : fields) {
      if (name != field.name) continue;
      if (!value.is_none()) field.set(*this, field.name, value);
      found = true;
      break;
    }
    if (!found) unknown_name(name);
  }
}

void Params::set_prompt(nb::handle text, nb::handle tokens_given, nb::handle messages) {
  if (!text.is_none()) {
    const auto [data, len] = to_utf8(text, "prompt");
    c.text = data;
    c.text_len = len;
  }
  if (!tokens_given.is_none()) {
    tokens = to_ids(tokens_given, "tokens");
    static const int32_t none = 0;  // an empty list is a prompt too: the library says what is wrong
    c.tokens = tokens.empty() ? &none : tokens.data();
    c.n_tokens = tokens.size();
  }
  if (!messages.is_none()) {
    const auto [data, len] = to_utf8(messages, "messages");
    c.messages = data;
    c.messages_len = len;
  }
}

std::vector<int32_t> to_ids(nb::handle values, const char* what) {
  if (PyUnicode_Check(values.ptr()) || PyBytes_Check(values.ptr()) || is_bool(values)) {
    bad_type(what, "a list of token ids", values);
  }
  nb::object items = nb::steal(PySequence_Fast(values.ptr(), ""));
  if (!items.is_valid()) {
    PyErr_Clear();
    bad_type(what, "a list of token ids", values);
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    // Held: __index__ may run code that changes the list.
    const nb::object held = nb::borrow(PySequence_Fast_GET_ITEM(items.ptr(), i));
    PyObject* item = held.ptr();
    if (PyLong_CheckExact(item)) {
      int overflow = 0;
      const long long id = PyLong_AsLongLongAndOverflow(item, &overflow);
      if (overflow == 0 && id >= 0 && id <= INT32_MAX) {
        ids.push_back(static_cast<int32_t>(id));
        continue;
      }
    }
    const std::string entry = std::string(what) + "[" + std::to_string(i) + "]";
    ids.push_back(static_cast<int32_t>(to_int(entry, item, 0, INT32_MAX)));
  }
  return ids;
}

std::pair<const char*, size_t> to_utf8(nb::handle text, const char* what) {
  if (!PyUnicode_Check(text.ptr())) bad_type(what, "a str", text);
  Py_ssize_t len = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &len);
  if (!data) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
    PyErr_Clear();
    raise_error(ORLOP_E_INVALID_ARGUMENT,
                std::string(what) + " holds a lone surrogate, which is not Unicode text");
  }
  return {data, static_cast<size_t>(len)};
}

int64_t to_timeout_us(nb::handle seconds) {
  if (seconds.is_none()) return -1;
  const double value = to_double("timeout", seconds);
  if (std::isnan(value) || value < 0) bad_value("timeout", "None or seconds from 0", seconds);
  const double us = value * 1e6;
  return us >= 9e18 ? -1 : static_cast<int64_t>(std::ceil(us));
}

}  // namespace orlop_py
