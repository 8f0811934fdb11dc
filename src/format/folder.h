// Reader of a Hugging Face checkpoint folder.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "format/checkpoint.h"

namespace orlop {

void open_folder(const std::string& path, LoadMode mode, Checkpoint& out);

// model.safetensors.index.json -> shard file name -> names of its tensors. Every shard is a plain
// file name. `name` is the file's name in messages.
std::map<std::string, std::vector<std::string>> parse_shard_index(std::string_view text,
                                                                  const std::string& name);

// The chat template that tokenizer_config.json holds, "" if none.
std::string template_of_tokenizer_config(std::string_view text, const std::string& name);

}  // namespace orlop
