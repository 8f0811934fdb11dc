// What a chat model writes, taken apart: orlop_chat_output for Python.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "handles.h"

namespace orlop_py {

class ChatOutput {
 public:
  // engine may be null.
  ChatOutput(const std::shared_ptr<EngineHandle>& engine, nanobind::handle json);
  ~ChatOutput() { orlop_chat_output_release(ptr_); }
  ChatOutput(const ChatOutput&) = delete;
  ChatOutput& operator=(const ChatOutput&) = delete;

  // The new events as JSON text.
  nanobind::str push(nanobind::handle text, bool last);

 private:
  orlop_chat_output* ptr_ = nullptr;
};

}  // namespace orlop_py
