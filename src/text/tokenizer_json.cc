// tokenizer.json of Hugging Face's tokenizers library and the tokenizer_config.json beside it ->
// TokenizerSpec. Parts without a counterpart here are refused by name, never passed over.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "base/json.h"
#include "text/json_fields.h"
#include "text/json_scan.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace orlop {
namespace {

constexpr const char* file = "tokenizer.json";
constexpr const char* config_file = "tokenizer_config.json";
constexpr const char* gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void unsupported(const std::string& where, const std::string& what) {
  fail(Status::unsupported, file, ": ", where, ": ", what, " is not supported");
}

using namespace json_fields;

class Reader {
 public:
  TokenizerSpec read(std::string_view tokenizer, std::string_view config);

 private:
  std::string scan(std::string_view tokenizer);
  void model(const Json& j);
  void added_tokens(const Json& root);
  void place_vocab();
  void normalizer(const Json& j, const std::string& where);
  void pre_tokenizer(const Json& j, const std::string& where, bool last);
  void decoder(const Json& j, const std::string& where);
  void post_processor(const Json& j, const std::string& where);
  void config(const Json& j);
  int32_t id_of(std::string_view piece);

  TokenizerSpec spec_;
  std::vector<std::pair<std::string, int64_t>> pieces_;
  std::vector<std::pair<size_t, size_t>> cut_;  // byte ranges that scan() has read
  std::unordered_map<std::string_view, int32_t> added_ids_;
  PieceTable table_;
  bool indexed_ = false;
  bool saw_vocab_ = false, saw_merges_ = false;
  bool byte_level_ = false, replaced_ = false, prepended_ = false;
  bool decodes_bytes_ = false, decodes_fallback_ = false, decodes_spaces_ = false;
  std::string unk_token_;
};

// Reads model.vocab and model.merges and returns the rest, with null in their place.
std::string Reader::scan(std::string_view tokenizer) {
  JsonScan in(tokenizer, file);
  std::string key, piece, right;
  const auto vocab = [&] {
    in.items('{', '}', [&] {
      in.string(piece);
      in.expect(':');
      pieces_.emplace_back(piece, in.integer());
      if (pieces_.size() > max_vocabulary)
        fail(Status::bad_format, file, ": model.vocab: more than ", max_vocabulary, " tokens");
    });
  };
  const auto merges = [&] {
    in.items('[', ']', [&] {
      const size_t index = spec_.merges.size();
      if (index >= max_merges)
        fail(Status::bad_format, file, ": model.merges: more than ", max_merges, " merges");
      if (in.take('[')) {
        in.string(piece);
        in.expect(',');
        in.string(right);
        in.expect(']');
        spec_.merges.emplace_back(piece, right);
        return;
      }
      in.string(piece);
      const size_t space = piece.find(' ');
      if (space == std::string::npos || piece.find(' ', space + 1) != std::string::npos)
        fail(Status::bad_format, file, ": model.merges: merge ", index, " ('", piece,
             "') is not two pieces");
      spec_.merges.emplace_back(piece.substr(0, space), piece.substr(space + 1));
    });
  };
  const auto value = [&](bool& seen, char open, auto&& read) {
    if (seen || in.peek() != open) return in.skip();  // the document's parser finds what is wrong
    seen = true;
    const size_t begin = in.pos();
    read();
    cut_.emplace_back(begin, in.pos());
  };
  if (in.peek() != '{') fail(Status::bad_format, file, ": an object is expected");
  in.items('{', '}', [&] {
    in.string(key);
    in.expect(':');
    if (key != "model" || in.peek() != '{') return in.skip();
    in.items('{', '}', [&] {
      in.string(key);
      in.expect(':');
      if (key == "vocab")
        value(saw_vocab_, '{', vocab);
      else if (key == "merges")
        value(saw_merges_, '[', merges);
      else
        in.skip();
    });
  });
  std::string rest;
  size_t from = 0;
  for (const auto& [begin, end] : cut_) {
    rest.append(tokenizer, from, begin - from).append("null");
    from = end;
  }
  return rest.append(tokenizer, from);
}

void Reader::model(const Json& j) {
  object(j, cat(file, ": model"));
  if (!absent(j, "type") && text(j, "type", cat(file, ": model")) != "BPE")
    unsupported("model.type", j["type"].get<std::string>());
  if (!saw_vocab_) fail(Status::bad_format, file, ": model.vocab: an object is expected");
  if (!saw_merges_) fail(Status::bad_format, file, ": model.merges: a list is expected");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!absent(j, key) && !text(j, key, cat(file, ": model")).empty())
      unsupported(cat("model.", key), text(j, key, cat(file, ": model")));
  if (!absent(j, "dropout")) {
    if (!j["dropout"].is_number()) fail(Status::bad_format, file, ": model.dropout: a number is expected");
    if (j["dropout"].get<double>() != 0) unsupported("model.dropout", j["dropout"].dump());
  }
  const std::string where = cat(file, ": model");
  spec_.byte_fallback = flag(j, "byte_fallback", false, where);
  spec_.fuse_unk = flag(j, "fuse_unk", false, where);
  spec_.ignore_merges = flag(j, "ignore_merges", false, where);
  if (!absent(j, "unk_token")) unk_token_ = text(j, "unk_token", where);
}

// Ids without holes, none twice: the vocabulary and the added tokens together.
void Reader::place_vocab() {
  const int64_t plain = static_cast<int64_t>(pieces_.size());
  size_t limit = pieces_.size();
  for (const AddedToken& a : spec_.added)
    if (a.id >= plain) ++limit;
  if (limit > max_vocabulary)
    fail(Status::bad_format, file, ": ", limit, " tokens, the limit is ", max_vocabulary);
  spec_.vocab.resize(limit);
  std::vector<uint8_t> used(limit);
  for (auto& [piece, id] : pieces_) {
    if (id < 0 || static_cast<size_t>(id) >= limit)
      fail(Status::bad_format, file, ": model.vocab: id ", id, " of '", piece,
           "' is outside the vocabulary of ", limit);
    const size_t i = static_cast<size_t>(id);
    if (used[i])
      fail(Status::bad_format, file, ": model.vocab: id ", id, " is both '", spec_.vocab[i],
           "' and '", piece, "'");
    used[i] = 1;
    spec_.vocab[i] = std::move(piece);
  }
  pieces_ = {};
  for (const AddedToken& a : spec_.added) {
    const size_t i = static_cast<size_t>(a.id);
    if (a.id < 0 || i >= limit)
      fail(Status::bad_format, file, ": added token '", a.text, "': id ", a.id,
           " leaves a hole in a vocabulary of ", limit);
    if (!used[i]) spec_.vocab[i] = a.text;
    used[i] = 1;
  }
  for (size_t i = 0; i < limit; ++i)
    if (!used[i]) fail(Status::bad_format, file, ": id ", i, " has no token");
}

AddedToken added_token(const Json& j, int32_t id, const std::string& where) {
  object(j, where);
  AddedToken t;
  t.id = id;
  t.text = text(j, "content", where);
  t.special = flag(j, "special", false, where);
  t.lstrip = flag(j, "lstrip", false, where);
  t.rstrip = flag(j, "rstrip", false, where);
  t.single_word = flag(j, "single_word", false, where);
  t.normalized = flag(j, "normalized", !t.special, where);
  return t;
}

void Reader::normalizer(const Json& j, const std::string& where) {
  object(j, where);
  const std::string type = text(j, "type", where);
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& part : list(j, "normalizers", where))
      normalizer(part, cat(where, ".normalizers[", i++, "]"));
  } else if (type == "NFC") {
    if (replaced_ || prepended_) unsupported(where, "NFC after Prepend or Replace");
    spec_.nfc = true;
  } else if (type == "Prepend") {
    if (prepended_ || text(j, "prepend", where) != escaped_space)
      unsupported(where, cat("Prepend of '", text(j, "prepend", where), "'"));
    prepended_ = true;
    spec_.dummy_prefix = TokenizerSpec::Prefix::always;
  } else if (type == "Replace") {
    const auto it = j.find("pattern");
    if (it == j.end() || !it->is_object() || absent(*it, "String") ||
        text(*it, "String", where) != " " || text(j, "content", where) != escaped_space)
      unsupported(where, cat("Replace ", j.dump()));
    replaced_ = true;
    spec_.escape_spaces = true;
  } else {
    unsupported(where, type);
  }
}

SplitRule::Behavior behavior(const Json& j, const std::string& where) {
  const std::string name = text(j, "behavior", where);
  if (name == "Isolated") return SplitRule::Behavior::isolated;
  if (name == "Removed") return SplitRule::Behavior::removed;
  if (name == "MergedWithPrevious") return SplitRule::Behavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitRule::Behavior::merged_with_next;
  if (name == "Contiguous") return SplitRule::Behavior::contiguous;
  unsupported(where, cat("the behavior ", name));
}

void Reader::pre_tokenizer(const Json& j, const std::string& where, bool last) {
  object(j, where);
  const std::string type = text(j, "type", where);
  if (type == "Sequence") {
    const Json& parts = list(j, "pretokenizers", where);
    for (size_t i = 0; i < parts.size(); ++i)
      pre_tokenizer(parts[i], cat(where, ".pretokenizers[", i, "]"), last && i + 1 == parts.size());
  } else if (type == "Split") {
    const auto it = j.find("pattern");
    if (it == j.end() || !it->is_object())
      fail(Status::bad_format, where, ".pattern: an object is expected");
    SplitRule rule;
    if (!absent(*it, "Regex"))
      rule.pattern = text(*it, "Regex", where);
    else
      rule.pattern = quoted_pattern(text(*it, "String", where));
    if (rule.pattern.empty()) fail(Status::bad_format, where, ".pattern: empty");
    rule.behavior = behavior(j, where);
    rule.invert = flag(j, "invert", false, where);
    spec_.splits.push_back(std::move(rule));
  } else if (type == "Digits") {
    const bool each = flag(j, "individual_digits", false, where);
    spec_.splits.push_back({each ? "\\p{N}" : "\\p{N}+", SplitRule::Behavior::isolated, false});
  } else if (type == "ByteLevel") {
    if (!last) unsupported(where, "ByteLevel before another pre-tokenizer");
    byte_level_ = true;
    if (flag(j, "add_prefix_space", true, where)) {
      if (!spec_.splits.empty()) unsupported(where, "add_prefix_space after a split");
      spec_.add_prefix_space = true;
    }
    if (flag(j, "use_regex", true, where))
      spec_.splits.push_back({gpt2_pattern, SplitRule::Behavior::isolated, false});
  } else if (type == "Metaspace") {
    if (text(j, "replacement", where) != escaped_space)
      unsupported(where, cat("the replacement '", text(j, "replacement", where), "'"));
    if (!spec_.splits.empty() || prepended_ || spec_.escape_spaces)
      unsupported(where, "Metaspace after another step");
    std::string scheme = flag(j, "add_prefix_space", true, where) ? "always" : "never";
    if (!absent(j, "prepend_scheme")) scheme = text(j, "prepend_scheme", where);
    if (scheme == "always")
      spec_.dummy_prefix = TokenizerSpec::Prefix::always;
    else if (scheme == "first")
      spec_.dummy_prefix = TokenizerSpec::Prefix::first;
    else if (scheme != "never")
      unsupported(where, cat("the prepend_scheme ", scheme));
    spec_.metaspace = true;
    spec_.escape_spaces = true;
    if (flag(j, "split", true, where))
      spec_.splits.push_back({std::string(escaped_space), SplitRule::Behavior::merged_with_next, false});
  } else {
    unsupported(where, type);
  }
}

void Reader::decoder(const Json& j, const std::string& where) {
  object(j, where);
  const std::string type = text(j, "type", where);
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& part : list(j, "decoders", where))
      decoder(part, cat(where, ".decoders[", i++, "]"));
  } else if (type == "ByteLevel") {
    decodes_bytes_ = true;
  } else if (type == "ByteFallback") {
    decodes_fallback_ = true;
  } else if (type == "Replace") {
    const auto it = j.find("pattern");
    if (it == j.end() || !it->is_object() || absent(*it, "String") ||
        text(*it, "String", where) != escaped_space || text(j, "content", where) != " ")
      unsupported(where, cat("Replace ", j.dump()));
    decodes_spaces_ = true;
  } else if (type == "Strip") {
    const int32_t start = number(j, "start", where), stop = number(j, "stop", where);
    if (text(j, "content", where) != " " || stop != 0 || start < 0 || start > 1)
      unsupported(where, cat("Strip ", j.dump()));
    spec_.strip_dummy_prefix = start == 1;
  } else if (type != "Fuse") {
    unsupported(where, type);
  }
}

void Reader::post_processor(const Json& j, const std::string& where) {
  object(j, where);
  const std::string type = text(j, "type", where);
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& part : list(j, "processors", where))
      post_processor(part, cat(where, ".processors[", i++, "]"));
    return;
  }
  if (type == "ByteLevel") return;  // moves offsets alone
  if (type != "TemplateProcessing") unsupported(where, type);
  const auto tokens = j.find("special_tokens");
  bool after = false;
  for (const Json& part : list(j, "single", where)) {
    object(part, where);
    if (part.contains("Sequence")) {
      if (after) unsupported(where, "a template with the text twice");
      after = true;
      continue;
    }
    const auto special = part.find("SpecialToken");
    if (special == part.end() || !special->is_object())
      fail(Status::bad_format, where, ".single: SpecialToken or Sequence is expected");
    const std::string name = text(*special, "id", where);
    if (tokens == j.end() || !tokens->is_object() || !tokens->contains(name))
      fail(Status::bad_format, where, ".special_tokens: '", name, "' is missing");
    for (const Json& id : list((*tokens)[name], "ids", where)) {
      if (!id.is_number_integer()) fail(Status::bad_format, where, ".special_tokens: ids of '", name, "'");
      const int64_t v = id.get<int64_t>();
      (after ? spec_.after : spec_.before).push_back(checked_cast<int32_t>(v, "post-processor id"));
    }
  }
  if (!after) fail(Status::bad_format, where, ".single: no Sequence");
}

int32_t Reader::id_of(std::string_view piece) {
  const auto it = added_ids_.find(piece);
  if (it != added_ids_.end()) return it->second;
  if (!indexed_) {
    table_.build(spec_.vocab);
    for (size_t i = 0; i < spec_.vocab.size(); ++i) table_.insert(static_cast<int32_t>(i));
    indexed_ = true;
  }
  return table_.find(piece);
}

// What tokenizer_config.json says of BOS, EOS, padding and unknown text. Its
// clean_up_tokenization_spaces is left alone, as the reference's fast tokenizers leave it.
void Reader::config(const Json& j) {
  object(j, config_file);
  const auto named = [&](const char* key) -> std::string {
    if (absent(j, key)) return {};
    if (j[key].is_object()) return text(j[key], "content", cat(config_file, ": ", key));
    return text(j, key, config_file);
  };
  const auto special = [&](const std::string& name) {
    if (name.empty()) return -1;
    const int32_t id = id_of(name);
    if (id < 0 || added_ids_.contains(spec_.vocab[static_cast<size_t>(id)])) return id;
    AddedToken t;
    t.id = id;
    t.text = name;
    t.special = true;
    spec_.added.push_back(std::move(t));
    added_ids_.emplace(spec_.vocab[static_cast<size_t>(id)], id);
    return id;
  };
  spec_.bos = special(named("bos_token"));
  spec_.eos = special(named("eos_token"));
  spec_.pad = special(named("pad_token"));
  const int32_t unk = special(named("unk_token"));
  if (spec_.unk < 0) spec_.unk = unk;
  if (!absent(j, "additional_special_tokens"))
    for (const Json& t : list(j, "additional_special_tokens", config_file))
      if (t.is_string()) special(t.get<std::string>());
  // Where the configuration speaks, it overrules the template of tokenizer.json.
  const auto rule = [&](const char* key, int32_t id, std::vector<int32_t>& ids, bool front) {
    if (absent(j, key)) return;
    const bool wanted = flag(j, key, false, config_file);
    if (id < 0) {
      if (wanted) fail(Status::bad_format, config_file, ": ", key, " without such a token");
      return;
    }
    const bool there = std::find(ids.begin(), ids.end(), id) != ids.end();
    if (wanted && !there) ids.insert(front ? ids.begin() : ids.end(), id);
    if (!wanted) std::erase(ids, id);
  };
  rule("add_bos_token", spec_.bos, spec_.before, true);
  rule("add_eos_token", spec_.eos, spec_.after, false);
}

TokenizerSpec Reader::read(std::string_view tokenizer, std::string_view config_text) {
  if (tokenizer.size() > JsonLimits{}.max_bytes)
    fail(Status::bad_format, file, ": ", tokenizer.size(), " bytes, the limit is ",
         JsonLimits{}.max_bytes);
  const Json root = parse_json(scan(tokenizer), file);
  object(root, file);
  if (absent(root, "model")) fail(Status::bad_format, file, ": model is missing");
  model(root["model"]);
  if (!absent(root, "normalizer")) normalizer(root["normalizer"], cat(file, ": normalizer"));
  if (!absent(root, "pre_tokenizer"))
    pre_tokenizer(root["pre_tokenizer"], cat(file, ": pre_tokenizer"), true);
  if (!absent(root, "decoder")) decoder(root["decoder"], cat(file, ": decoder"));
  if (!absent(root, "post_processor"))
    post_processor(root["post_processor"], cat(file, ": post_processor"));

  if (!absent(root, "added_tokens")) {
    size_t i = 0;
    for (const Json& j : list(root, "added_tokens", file)) {
      const std::string where = cat(file, ": added_tokens[", i++, "]");
      object(j, where);
      spec_.added.push_back(added_token(j, number(j, "id", where), where));
    }
  }
  Json config_json;
  if (!config_text.empty()) {
    config_json = parse_json(config_text, config_file);
    object(config_json, config_file);
    if (!absent(config_json, "added_tokens_decoder")) {
      std::unordered_map<int32_t, size_t> known;
      for (size_t i = 0; i < spec_.added.size(); ++i) known.emplace(spec_.added[i].id, i);
      const Json& more = object(config_json["added_tokens_decoder"], cat(config_file, ": added_tokens_decoder"));
      for (const auto& [key, j] : more.items()) {
        const std::string where = cat(config_file, ": added_tokens_decoder.", key);
        if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos)
          fail(Status::bad_format, where, ": the key is no id");
        AddedToken t = added_token(j, std::stoi(key), where);
        const auto it = known.find(t.id);
        if (it == known.end())
          spec_.added.push_back(std::move(t));
        else if (spec_.added[it->second].text != t.text)
          fail(Status::bad_format, where, ": '", t.text, "' here and '",
               spec_.added[it->second].text, "' in ", file);
      }
    }
  }
  place_vocab();
  for (const AddedToken& a : spec_.added)
    added_ids_.emplace(spec_.vocab[static_cast<size_t>(a.id)], a.id);

  if (prepended_ && !replaced_) unsupported("normalizer", "Prepend without Replace");
  if (byte_level_) {
    spec_.kind = TokenizerSpec::Kind::byte_bpe;
    if (replaced_ || prepended_ || spec_.escape_spaces) unsupported("normalizer", "U+2581 with ByteLevel");
    if (!decodes_bytes_) unsupported("decoder", "other than ByteLevel after ByteLevel");
    if (decodes_fallback_ || decodes_spaces_) unsupported("decoder", "ByteLevel with other steps");
  } else {
    spec_.kind = TokenizerSpec::Kind::sentencepiece_bpe;
    if (decodes_bytes_) unsupported("decoder", "ByteLevel without such a pre-tokenizer");
    if (decodes_fallback_ != spec_.byte_fallback)
      unsupported("decoder", "ByteFallback in one of model and decoder alone");
    if (decodes_spaces_ != spec_.escape_spaces)
      unsupported("decoder", "U+2581 in one of normalizer and decoder alone");
  }
  if (!unk_token_.empty()) {
    spec_.unk = id_of(unk_token_);
    if (spec_.unk < 0)
      fail(Status::bad_format, file, ": model.unk_token '", unk_token_, "' is not in the vocabulary");
  }
  if (!config_json.is_null()) config(config_json);
  // Just BOS and EOS are said in the plain way.
  if (spec_.bos >= 0 && spec_.before == std::vector<int32_t>{spec_.bos}) {
    spec_.before.clear();
    spec_.add_bos = true;
  }
  if (spec_.eos >= 0 && spec_.after == std::vector<int32_t>{spec_.eos}) {
    spec_.after.clear();
    spec_.add_eos = true;
  }
  return std::move(spec_);
}

}  // namespace

TokenizerSpec tokenizer_spec_from_json(std::string_view tokenizer_json,
                                       std::string_view tokenizer_config_json) {
  return Reader().read(tokenizer_json, tokenizer_config_json);
}

}  // namespace orlop
