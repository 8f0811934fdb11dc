#include "format/checkpoint.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "format/folder.h"
#include "format/gguf.h"

namespace orlop {

std::shared_ptr<Checkpoint> Checkpoint::open(const std::string& path, LoadMode mode,
                                             FileRange part) {
  if (path.empty()) fail(Status::invalid_argument, "the path of the model is empty");
  if (path.find('\0') != std::string::npos)
    fail(Status::invalid_argument, "the path of the model holds a NUL byte: ", path.c_str());
  auto out = std::make_shared<Checkpoint>();
  out->path = path;
  out->part = part;

  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    const int error = errno;
    fail(error == ENOENT || error == ENOTDIR ? Status::not_found : Status::io, path,
         ": cannot be opened: ", std::generic_category().message(error));
  }
  if (S_ISDIR(st.st_mode)) {
    if (!part.whole())
      fail(Status::invalid_argument, path,
           ": is a folder; a part (model_offset, model_bytes) is of one file");
    out->kind = Kind::hugging_face;
    open_folder(path, mode, *out);
    return out;
  }

  auto file = MappedFile::open(path, mode, part);
  if (file->bytes().empty()) fail(Status::bad_format, path, ": is empty");
  if (file->bytes().size() < 4 || std::memcmp(file->bytes().data(), "GGUF", 4) != 0) {
    if (path.ends_with(".safetensors"))
      fail(Status::invalid_argument, path,
           ": is one file of a checkpoint folder; give the folder that holds it and config.json");
    fail(Status::bad_format, path,
         ": is neither a checkpoint folder nor a GGUF file (no magic \"GGUF\")");
  }
  out->kind = Kind::gguf;
  parse_gguf(file->bytes(), path, file, *out);
  out->files.push_back(std::move(file));
  if (const auto it = out->meta.find("tokenizer.chat_template"); it != out->meta.end())
    if (const auto* text = std::get_if<std::string>(&it->second)) out->chat_template = *text;
  return out;
}

const FileTensor* Checkpoint::find(std::string_view name) const {
  const auto it = index.find(std::string(name));
  return it == index.end() ? nullptr : &tensors[it->second];
}

}  // namespace orlop
