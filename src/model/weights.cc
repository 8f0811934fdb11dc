#include "model/weights.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "format/quant.h"
#include "format/quant_tensors.h"
#include "model/pack.h"
#include "model/quantize.h"
#include "ops/ops.h"

namespace orlop {
namespace {

// The tensors of a decoder and what the two containers call them. %d is the layer.
struct SlotName {
  const char* hf;
  const char* gguf;
};
constexpr SlotName embed_name = {"model.embed_tokens", "token_embd"};
constexpr SlotName final_norm_name = {"model.norm", "output_norm"};
constexpr SlotName head_name = {"lm_head", "output"};
constexpr SlotName attn_norm_name = {"model.layers.%d.input_layernorm", "blk.%d.attn_norm"};
constexpr SlotName q_name = {"model.layers.%d.self_attn.q_proj", "blk.%d.attn_q"};
constexpr SlotName k_name = {"model.layers.%d.self_attn.k_proj", "blk.%d.attn_k"};
constexpr SlotName v_name = {"model.layers.%d.self_attn.v_proj", "blk.%d.attn_v"};
constexpr SlotName out_name = {"model.layers.%d.self_attn.o_proj", "blk.%d.attn_output"};
constexpr SlotName q_norm_name = {"model.layers.%d.self_attn.q_norm", "blk.%d.attn_q_norm"};
constexpr SlotName k_norm_name = {"model.layers.%d.self_attn.k_norm", "blk.%d.attn_k_norm"};
constexpr SlotName ffn_norm_name = {"model.layers.%d.post_attention_layernorm", "blk.%d.ffn_norm"};
constexpr SlotName gate_name = {"model.layers.%d.mlp.gate_proj", "blk.%d.ffn_gate"};
constexpr SlotName up_name = {"model.layers.%d.mlp.up_proj", "blk.%d.ffn_up"};
constexpr SlotName down_name = {"model.layers.%d.mlp.down_proj", "blk.%d.ffn_down"};

// Tensors that some files carry although they follow from the configuration.
bool is_derived(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight";
}

// One part of a linear layer: slot, rows, and the order of its rows in the file.
struct LinearPart {
  SlotName slot;
  int64_t rows;
  const std::vector<int32_t>* row_map;
};

class Builder {
 public:
  Builder(const Checkpoint& checkpoint, const Config& config, const Arch& arch,
          std::span<const Part> parts, const QuantOptions& quant)
      : checkpoint_(checkpoint),
        config_(config),
        arch_(arch),
        parts_(parts),
        quant_(quant),
        plans_(parts.size()),
        scheme_(QuantScheme::open(checkpoint)) {
    gguf_ = checkpoint.kind == Checkpoint::Kind::gguf;
    check_options();
    if (gguf_ && arch.gguf_pairs_adjacent) {
      q_map_ = adjacent_pairs_map(config.heads);
      k_map_ = adjacent_pairs_map(config.kv_heads);
    }
  }

  Weights build(LoadProgress* progress) {
    Weights w;
    w.layers.resize(static_cast<size_t>(config_.layers));
    const bool tied = head_is_tied(), shared = tied && parts_.size() == 1;
    const int64_t dim = config_.dim;
    lookup_ = true;
    read_again_ = tied && !shared;
    add_linear(w.embed, {{embed_name, config_.vocab, nullptr}}, dim,
               // Untied rows are only looked up, never multiplied: keep their exact values.
               Glu::none, tied ? head_compute() : Compute::fp32, false);
    lookup_ = read_again_ = false;
    for (; part_ < parts_.size(); ++part_)
      for (int32_t i = here().begin; i < here().end; ++i) add_layer(w.layers[static_cast<size_t>(i)], i);
    layer_ = -1;
    part_ = parts_.size() - 1;
    add_vector(w.final_norm, final_norm_name, ".weight", dim, nullptr);
    lookup_ = true;
    if (!shared)
      add_linear(w.head, {{tied ? embed_name : head_name, config_.vocab, nullptr}}, dim, Glu::none,
                 head_compute(), false);
    refuse_leftovers(tied);
    if (quant_.kind == QuantOptions::Kind::dynamic && !quantized_any_)
      fail(Status::invalid_argument, "quant: ", checkpoint_.path,
           " holds no float matrices (they are ",
           facts_.elements.empty() ? "" : facts_.elements.begin()->first,
           "); only those can be quantized");
    facts_.quant = scheme_ ? scheme_->summary() : dynamic_summary();
    w.facts = facts_;

    uint64_t file_bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const size_t bytes = plans_[i].bytes();
      try {
        w.storage.emplace_back(*parts_[i].exec.device, bytes);
      } catch (const Error& e) {
        fail(e.status(), checkpoint_.path, ": ", bytes, " bytes of weights",
             parts_.size() > 1 ? cat(" on ", parts_[i].exec.device->name()) : "", ": ", e.text());
      }
      w.bytes += bytes;
      file_bytes += plans_[i].file_bytes();
    }
    if (progress) progress->bytes_total = file_bytes;
    for (size_t i = 0; i < parts_.size(); ++i)
      plans_[i].run(w.storage[i].as<unsigned char>(), parts_[i].exec, progress);
    if (shared) w.head = w.embed;
    return w;
  }

 private:
  void add_layer(LayerWeights& l, int32_t i) {
    layer_ = i;
    const int64_t dim = config_.dim, hd = config_.head_dim;
    const int64_t q = config_.heads * hd, kv = config_.kv_heads * hd;
    add_vector(l.attn_norm, attn_norm_name, ".weight", dim, nullptr);
    const std::initializer_list<LinearPart> qkv = {{q_name, q, map(q_map_)}, {k_name, kv, map(k_map_)}, {v_name, kv, nullptr}};
    add_linear(l.qkv, qkv, dim, Glu::none, attention_compute(qkv), config_.attention_bias);
    if (arch_.qk_norm) {
      add_vector(l.q_norm, q_norm_name, ".weight", hd, nullptr);
      add_vector(l.k_norm, k_norm_name, ".weight", hd, nullptr);
    }
    const std::initializer_list<LinearPart> out = {{out_name, dim, nullptr}};
    add_linear(l.out, out, q, Glu::none, attention_compute(out), config_.attention_out_bias);
    add_vector(l.ffn_norm, ffn_norm_name, ".weight", dim, nullptr);
    const int64_t ffn = config_.ffn_dim;
    add_linear(l.gate_up, {{gate_name, ffn, nullptr}, {up_name, ffn, nullptr}}, dim,
               config_.activation, here().compute, config_.mlp_bias);
    add_linear(l.down, {{down_name, dim, nullptr}}, ffn, Glu::none, here().compute, config_.mlp_bias);
  }

  void check_options() const {
    const bool dynamic = quant_.kind == QuantOptions::Kind::dynamic;
    if (dynamic && scheme_)
      fail(Status::invalid_argument, "quant: ", checkpoint_.path, " is quantized already (",
           scheme_->summary(), ")");
    if (!quant_.method.empty() && (!scheme_ || scheme_->method() != quant_.method))
      fail(Status::invalid_argument, "quant: ", checkpoint_.path, " is not quantized by ",
           quant_.method, " but ", scheme_ ? cat("by ", scheme_->method()) : "holds plain weights");
  }

  std::string dynamic_summary() const {
    if (quant_.kind != QuantOptions::Kind::dynamic) return "none";
    return cat(quant_.bits, " bits at load, ",
               quant_.group ? cat("groups of ", quant_.group) : "a scale per channel",
               quant_.symmetric ? ", symmetric" : ", asymmetric",
               quant_.bits == 4 ? "; embedding and head 8 bits" : "",
               quant_.int8_activations ? "; int8 activations" : "");
  }

  // Attention exponentiates the errors of its scores. On SmolLM2 over 4,096 tokens of text, int8
  // activations everywhere move a logprob by 0.058 on average; with attention's projections in bf16
  // (a quarter of the layers' products) it is 0.048. Of int8 weights per channel with one activation
  // scale per token it is 0.152 instead of 0.191, and perplexity rises by 1.9 % instead of 4.1 %.
  // Matrices that a checkpoint has made for activations in e4m3 have them.
  Compute attention_compute(std::initializer_list<LinearPart> parts) const {
    const Compute c = here().compute;
    const bool fp8 = std::all_of(parts.begin(), parts.end(), [&](const LinearPart& part) {
      const std::string module = tensor_name(part.slot, "");
      return scheme_ && scheme_->holds(module) && scheme_->fp8_activations(module);
    });
    if (c == Compute::a8 && fp8) return c;
    return c == Compute::int8 || c == Compute::a8 ? Compute::bf16 : c;
  }

  // Logits are the last to be rounded, and no layer repairs them.
  Compute head_compute() const {
    return here().compute == Compute::a8 ? Compute::bf16 : here().compute;
  }

  static const std::vector<int32_t>* map(const std::vector<int32_t>& m) {
    return m.empty() ? nullptr : &m;
  }

  // Packed row i*2-apart pairs -> half-apart pairs, head by head.
  std::vector<int32_t> adjacent_pairs_map(int32_t heads) const {
    const int32_t hd = config_.head_dim, half = hd / 2;
    std::vector<int32_t> rows(static_cast<size_t>(heads) * static_cast<size_t>(hd));
    for (int32_t h = 0; h < heads; ++h)
      for (int32_t j = 0; j < hd; ++j)
        rows[static_cast<size_t>(h * hd + j)] = h * hd + 2 * (j % half) + j / half;
    return rows;
  }

  std::string tensor_name(const SlotName& slot, const char* suffix) const {
    std::string name = gguf_ ? slot.gguf : slot.hf;
    if (const size_t at = name.find("%d"); at != std::string::npos)
      name.replace(at, 2, std::to_string(layer_));
    return name + suffix;
  }

  const FileTensor& need(const std::string& name, std::initializer_list<int64_t> shape) {
    const FileTensor* t = checkpoint_.find(name);
    if (!t) fail(Status::bad_format, checkpoint_.path, ": tensor ", name, " is missing");
    used_.insert(name);
    if (!std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end()))
      fail(Status::bad_format, t->file->path(), ": tensor ", name, " has shape ",
           shape_text(t->shape), ", the configuration asks for ", shape_text(shape));
    return *t;
  }

  static std::string shape_text(const std::vector<int64_t>& shape) {
    std::string s = "[";
    for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
    return s + "]";
  }

  const Part& here() const { return parts_[part_]; }
  PackPlan& plan() { return plans_[part_]; }

  void add_vector(float*& slot, const SlotName& name, const char* suffix, int64_t n,
                  const std::vector<int32_t>* row_map) {
    plan().add_vector(&slot, n, {{&need(tensor_name(name, suffix), {n}), n, row_map, nullptr, {}}});
  }

  void add_linear(Linear& linear, std::initializer_list<LinearPart> parts, int64_t k, Glu glu,
                  Compute compute, bool with_bias) {
    LinearDesc& d = linear.desc;
    d.k = k;
    d.glu = glu;
    d.compute = compute;
    std::vector<PackPlan::Piece> rows, biases;
    std::vector<int32_t> k_map;
    for (const LinearPart& part : parts) {
      std::vector<int32_t> order;
      rows.push_back(piece_of(part, d, order));
      if (d.part_count == 1) {
        k_map = std::move(order);
      } else if (k_map != order) {
        fail(Status::unsupported, checkpoint_.path, ": ", tensor_name(parts.begin()->slot, ""),
             " and ", tensor_name(part.slot, ""),
             " order their inputs differently (g_idx), which is not "
             "supported for matrices that are multiplied together");
      }
      const std::string bias = tensor_name(part.slot, ".bias");
      if (with_bias)
        biases.push_back({&need(bias, {part.rows}), part.rows, part.row_map, nullptr, {}});
      else if (const FileTensor* extra = checkpoint_.find(bias))
        refuse_bias(*extra);
    }
    if (!k_map.empty()) plan().add_indices(&d.k_map, std::move(k_map));
    ops::check_linear(d, tensor_name(parts.begin()->slot, ".weight").c_str());
    plan().add_linear(&linear, here().exec, std::move(rows));
    if (with_bias)
      plan().add_vector(&linear.bias, glu == Glu::none ? d.n() : 2 * d.n(), std::move(biases));
  }

  // Where one part's weights come from; fills its type, rows and group in d, and the order of k.
  PackPlan::Piece piece_of(const LinearPart& part, LinearDesc& d, std::vector<int32_t>& order) {
    const int at = d.part_count++;
    d.part_n[at] = part.rows;
    const std::string module = tensor_name(part.slot, "");
    PackPlan::Piece piece{nullptr, part.rows, part.row_map, nullptr, {}, read_again_};
    if (scheme_ && scheme_->holds(module)) {
      QuantMatrix m = scheme_->matrix(module, part.rows, d.k);
      for (const FileTensor* t : m.tensors) used_.insert(t->name);
      d.type[at] = m.type;
      d.group[at] = m.group;
      order = std::move(m.k_map);
      piece.quant = plan().keep(std::move(m.rows));
      piece.read_by_quant = std::move(m.tensors);
    } else {
      if (const FileTensor* packed = scheme_ ? nullptr : checkpoint_.find(module + ".qweight"))
        fail(Status::bad_format, tensor_place(*packed),
             " is packed, and no quantization_config in config.json says how");
      const FileTensor& t = need(module + ".weight", {part.rows, d.k});
      const bool floats =
          t.type == FileType::f32 || t.type == FileType::f16 || t.type == FileType::bf16;
      if (!floats && static_cast<int>(t.type) >= ggml_type_count)
        fail(Status::unsupported, tensor_place(t), " holds ", info(t.type).name,
             ", and no quantization_config says what they stand for");
      piece.tensor = &t;
      d.type[at] = t.type;
      if (floats && quant_.kind == QuantOptions::Kind::dynamic) {
        // A token's row is looked up as it is, and logits are compared: 8 bits there.
        d.type[at] = lookup_ && quant_.bits == 4 ? FileType::w8
                                                 : quantized_type(quant_.bits, quant_.symmetric);
        d.group[at] = quant_.group < d.k ? quant_.group : 0;
        piece.quant = plan().keep(quantize_rows(t, d.k, d.type[at], d.group[at]));
        piece.read_by_quant = {&t};
        quantized_any_ = true;
      }
    }
    facts_.elements[info(d.type[at]).name] +=
        static_cast<uint64_t>(part.rows) * static_cast<uint64_t>(d.k);
    return piece;
  }

  // Some GPTQ files keep a bias of zeros for every matrix.
  void refuse_bias(const FileTensor& bias) {
    bool zero = scheme_ != nullptr && bias.type != FileType::f8;
    for (size_t i = 0; zero && i < bias.data.size(); ++i) zero = bias.data[i] == std::byte{0};
    if (!zero)
      fail(Status::bad_format, bias.file->path(), ": tensor ", bias.name,
           " is there although the configuration has no bias for it");
    used_.insert(bias.name);
  }

  bool head_is_tied() {
    const bool present = checkpoint_.find(gguf_ ? "output.weight" : "lm_head.weight") != nullptr;
    return gguf_ ? !present : config_.tied_embeddings;
  }

  void refuse_leftovers(bool tied) const {
    for (const FileTensor& t : checkpoint_.tensors) {
      if (used_.count(t.name) || is_derived(t.name)) continue;
      if (scheme_ && QuantScheme::is_idle(t.name)) continue;
      if (tied && t.name == "lm_head.weight") continue;  // a copy of the embedding
      fail(Status::bad_format, t.file->path(), ": tensor ", t.name, " has no place in a ",
           arch_.name, " model of ", config_.layers, " layers");
    }
  }

  const Checkpoint& checkpoint_;
  const Config& config_;
  const Arch& arch_;
  const std::span<const Part> parts_;
  const QuantOptions& quant_;
  std::vector<PackPlan> plans_;  // [parts_]
  size_t part_ = 0;              // whose weights are added
  const std::unique_ptr<QuantScheme> scheme_;  // null: weights are as their tensors' types say
  bool gguf_ = false;
  bool lookup_ = false;  // the embedding and the head
  bool read_again_ = false;
  bool quantized_any_ = false;
  WeightFacts facts_;
  int32_t layer_ = -1;
  std::vector<int32_t> q_map_, k_map_;
  std::unordered_set<std::string> used_;
};

}  // namespace

Weights load_weights(const Checkpoint& checkpoint, const Config& config, const Arch& arch,
                     std::span<const Part> parts, const QuantOptions& quant, LoadProgress* progress) {
  return Builder(checkpoint, config, arch, parts, quant).build(progress);
}

}  // namespace orlop
