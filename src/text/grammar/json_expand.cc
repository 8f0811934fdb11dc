// $ref, allOf, anyOf and oneOf to alternatives.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "text/grammar/json_shape.h"

namespace orlop::schema {
namespace {

constexpr size_t max_alternatives = 10'000;  // of one value
constexpr size_t max_pairs_of = 64;          // alternatives of a oneOf that are compared two by two
constexpr size_t max_in_place = 256;         // schemas that refer to each other in place

bool has(const std::vector<Node::Id>& list, Node::Id id) {
  return std::ranges::find(list, id) != list.end();
}

}  // namespace

Merger::Merger(const Document& document, const GrammarLimits& limits)
    : doc_(document), scratch_(limits) {}

void Merger::spend(uint64_t steps, Node::Id id) {
  if (steps > budget_)
    fail(Status::invalid_argument, doc_.path(id),
         ": the combinations of allOf, anyOf, oneOf and $ref are too many");
  budget_ -= steps;
}

const std::vector<Shape>& Merger::shapes(const Together& together) {
  if (const auto it = shapes_.find(together); it != shapes_.end()) return it->second;
  std::vector<Shape> all = expanded(together);
  for (Shape& s : all)
    if (s.values) std::erase_if(*s.values, [&](const auto& v) { return !fits(*v.second, s); });
  std::erase_if(all, [](const Shape& s) { return s.values && s.values->empty(); });
  return shapes_[together] = std::move(all);
}

// With values that the other keywords may not admit. Looks at no schema of a part of the value, so
// that it comes to an end whatever refers to what.
const std::vector<Shape>& Merger::expanded(const Together& together) {
  if (const auto it = expanded_.find(together); it != expanded_.end()) return it->second;
  Drafts drafts(1);
  for (const int32_t entry : together) {
    if (entry % 2)
      own(drafts, entry / 2);
    else
      apply(drafts, entry / 2);
  }
  std::vector<Shape> all;
  for (Draft& d : drafts) {
    spend(4 + d.nodes.size(), d.nodes.empty() ? doc_.root() : d.nodes[0]);
    Shape shape = finish(std::move(d));
    if (shape.types) all.push_back(std::move(shape));
  }
  return expanded_[together] = std::move(all);
}

// The keywords of the node itself.
void Merger::own(Drafts& drafts, Node::Id id) {
  const Node& node = doc_.at(id);
  if (node.never) return drafts.clear();
  for (Draft& d : drafts) {
    d.types &= node.types;
    if (node.plain && !has(d.nodes, id)) d.nodes.push_back(id);
  }
  std::erase_if(drafts, [](const Draft& d) { return d.types == 0; });
}

void Merger::apply(Drafts& drafts, Node::Id id) {
  const Node& node = doc_.at(id);
  if (has(stack_, id))
    fail(Status::invalid_argument, doc_.path(id),
         "/$ref: a schema that refers to itself for the same value");
  if (stack_.size() >= max_in_place)
    fail(Status::invalid_argument, doc_.path(id), ": more than ", max_in_place,
         " schemas that refer to each other for one value");
  // What holds already need not be added again: also keeps references that share schemas cheap.
  Drafts done;
  for (Draft& d : drafts)
    if (has(d.done, id))
      done.push_back(std::move(d));
    else
      d.done.push_back(id);
  std::erase_if(drafts, [](const Draft& d) { return d.done.empty(); });
  spend(drafts.size() + 1, id);
  stack_.push_back(id);
  own(drafts, id);
  if (!drafts.empty() && node.ref != Node::absent) apply(drafts, node.ref);
  for (const Node::Id one : node.all_of)
    if (!drafts.empty()) apply(drafts, one);
  if (!drafts.empty() && !node.any_of.empty()) either(drafts, id, node.any_of);
  if (!drafts.empty() && !node.one_of.empty()) {
    if (one_of_.insert(id).second) unproved_.push_back(id);
    either(drafts, id, node.one_of);
  }
  stack_.pop_back();
  std::ranges::move(done, std::back_inserter(drafts));
}

void Merger::either(Drafts& drafts, Node::Id id, const std::vector<Node::Id>& options) {
  Drafts all;
  std::set<std::pair<uint8_t, std::vector<Node::Id>>> known;
  for (const Node::Id option : options) {
    for (const Draft& d : drafts) spend(4 + d.done.size() + d.nodes.size(), id);
    Drafts some = drafts;
    apply(some, option);
    for (Draft& d : some) {
      std::vector<Node::Id> nodes = d.nodes;
      std::ranges::sort(nodes);
      if (known.emplace(d.types, std::move(nodes)).second) all.push_back(std::move(d));
    }
    if (all.size() > max_alternatives)
      fail(Status::invalid_argument, doc_.path(id), ": more than ", max_alternatives,
           " combinations of anyOf and oneOf for one value");
  }
  drafts = std::move(all);
}

void Merger::prove_disjoint() {
  while (!unproved_.empty()) {
    const Node::Id id = unproved_.back();
    unproved_.pop_back();
    prove_disjoint(id);
  }
}

void Merger::prove_disjoint(Node::Id id) {
  const Node& node = doc_.at(id);
  const auto& options = node.one_of;
  if (options.size() == 1 || different_values(options)) return;
  const auto refuse = [&](const auto&... words) {
    fail(Status::unsupported, doc_.path(id), "/oneOf: not supported: ", words...);
  };
  if (options.size() > max_pairs_of)
    refuse("more than ", max_pairs_of, " schemas that are not all const or enum; use anyOf");
  Together beside = {2 * id + 1};
  for (const Node::Id one : node.all_of) beside.push_back(2 * one);
  if (node.ref != Node::absent) beside.push_back(2 * node.ref);
  for (size_t j = 1; j < options.size(); ++j)
    for (size_t i = 0; i < j; ++i) {
      Together both = beside;
      both.push_back(2 * options[i]);
      both.push_back(2 * options[j]);
      std::ranges::sort(both);
      both.erase(std::unique(both.begin(), both.end()), both.end());
      spend(64, id);
      if (!impossible(both))
        refuse("a value may match both schema ", i, " and schema ", j,
               "; use anyOf, or make them differ in type, const, enum or the const of a required "
               "property");
    }
}

bool Merger::different_values(const std::vector<Node::Id>& options) const {
  std::set<std::string> known;
  for (const Node::Id option : options) {
    const Node& node = doc_.at(option);
    if (!node.json->is_object()) return false;
    if (const auto it = node.json->find("const"); it != node.json->end()) {
      if (!known.insert(canonical(*it)).second) return false;
    } else if (const auto list = node.json->find("enum"); list != node.json->end()) {
      std::set<std::string> mine;
      for (const OrderedJson& one : *list) mine.insert(canonical(one));
      for (const std::string& one : mine)
        if (!known.insert(one).second) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace orlop::schema
