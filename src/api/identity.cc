#include "api/identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "api/core.h"
#include "base/error.h"
#include "format/state.h"

namespace orlop::api {
namespace {

void add_number(Hash& h, uint64_t v) {
  h.add(std::as_bytes(std::span(&v, 1)));
}

void add_text(Hash& h, std::string_view s) {
  add_number(h, s.size());
  h.add(s);
}

template <class T>
void add_value(Hash& h, const T& v) {
  if constexpr (std::is_same_v<T, std::string>) {
    add_text(h, v);
  } else if constexpr (std::is_arithmetic_v<T>) {
    h.add(std::as_bytes(std::span(&v, 1)));
  } else if constexpr (std::is_same_v<T, MetaArray>) {
    add_number(h, v.index());
    std::visit(
        [&](const auto& list) {
          add_number(h, list.size());
          for (const auto& e : list) add_value(h, e);
        },
        v);
  } else {
    static_assert(!sizeof(T), "a kind of metadata without a hash");
  }
}

std::string tokenizer_hash(const Checkpoint& c) {
  Hash h;
  if (c.kind == Checkpoint::Kind::gguf) {
    std::vector<const std::pair<const std::string, MetaValue>*> entries;
    for (const auto& entry : c.meta)
      if (entry.first.starts_with("tokenizer.") &&
          !entry.first.starts_with("tokenizer.chat_template"))
        entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* entry : entries) {
      add_text(h, entry->first);
      add_number(h, entry->second.index());
      std::visit([&](const auto& v) { add_value(h, v); }, entry->second);
    }
  } else {
    add_text(h, c.tokenizer_json);
  }
  return hex(h.end());
}

}  // namespace

ModelIdentity::File ModelIdentity::look(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0)
    fail(Status::io, path, ": ", std::generic_category().message(errno));
  return {path,
          static_cast<uint64_t>(s.st_dev),
          static_cast<uint64_t>(s.st_ino),
          static_cast<uint64_t>(s.st_size),
          static_cast<int64_t>(s.st_mtim.tv_sec),
          static_cast<int64_t>(s.st_mtim.tv_nsec)};
}

ModelIdentity::ModelIdentity(const Checkpoint& checkpoint)
    : path_(std::filesystem::absolute(checkpoint.path).string()),
      part_(checkpoint.part),
      tokenizer_(tokenizer_hash(checkpoint)) {
  for (const auto& file : checkpoint.files)
    files_.push_back(look(std::filesystem::absolute(file->path()).string()));
}

void ModelIdentity::check_files() const {
  for (const File& file : files_)
    if (look(file.path) != file)
      fail(Status::io, file.path,
           ": changed since the model was loaded; a state cannot be tied to what was loaded");
}

const std::string& ModelIdentity::model() const {
  std::lock_guard lock(mutex_);
  if (!model_.empty()) return model_;
  check_files();
  const auto checkpoint = Checkpoint::open(path_, LoadMode::mmap, part_);
  std::vector<const FileTensor*> tensors;
  for (const FileTensor& t : checkpoint->tensors) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(),
            [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
  constexpr size_t slice = size_t{16} << 20;
  Hash h;
  for (const FileTensor* t : tensors) {
    add_text(h, t->name);
    add_text(h, info(t->type).name);
    add_number(h, t->shape.size());
    for (const int64_t n : t->shape) add_number(h, static_cast<uint64_t>(n));
    for (size_t at = 0; at < t->data.size(); at += slice) {
      const auto piece = t->data.subspan(at, std::min(slice, t->data.size() - at));
      h.add(piece);
      if (t->file) t->file->drop(piece);
    }
  }
  check_files();
  model_ = hex(h.end());
  return model_;
}

namespace {

// What besides the weights decides what a key or a value is.
std::string config_hash(const Config& c, const ModelLimits& limits) {
  Hash h;
  add_text(h, c.arch);
  for (const int32_t n : {c.layers, c.dim, c.heads, c.kv_heads, c.head_dim, c.ffn_dim, c.vocab,
                          c.window, c.rope.dim, static_cast<int32_t>(c.activation)})
    add_value(h, n);
  add_value(h, c.norm_eps);
  for (const uint8_t w : c.layer_window) add_value(h, w);
  // The frequencies themselves: some scalings depend on the context too.
  const RopeFrequencies rope = rope_frequencies(c.rope, c.max_position, limits.max_context);
  h.add(std::as_bytes(std::span(rope.inv_freq)));
  add_value(h, rope.scale);
  return hex(h.end());
}

// Weights quantized at load are other weights.
std::string quant_text(const QuantOptions& q) {
  if (q.kind == QuantOptions::Kind::stored) return "stored";
  return cat(q.bits, "/", q.group, q.symmetric ? "/symmetric" : "/asymmetric");
}

}  // namespace

StateFields Core::state_fields() const {
  const ModelLimits& l = model_->limits();
  std::string compute, kernels;
  bool blocks = false;  // a GPU's coded pages: since layout 2
  for (const Part& p : parts_) {
    blocks = blocks || (std::string_view(p.exec.kernels->backend) == "cuda" && (l.kv_type == KvType::int8 || l.kv_type == KvType::uint4));
    compute += cat(p.begin ? "+" : "", name(p.compute));
    kernels += cat(p.exec.kernels->backend, "/", p.exec.kernels->isa, parts_.size() > 1 ? cat("/", p.end, "/") : "/");
  }
  return {{"model", identity_.model()},
          {"tokenizer", identity_.tokenizer()},
          {"config", config_hash(model_->config(), l)},
          {"compute", compute},
          {"quant", quant_text(l.quant)},
          {"kv_dtype", name(l.kv_type)},
          {"block_size", std::to_string(l.page_tokens)},
          // A page's layout, and the bits in it, are those of the kernels.
          {"layout", kernels + (blocks ? "2" : "1")}};
}

}  // namespace orlop::api
