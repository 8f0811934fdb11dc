// Subset construction, product, and minimization by refinement of partitions (E. F. Moore,
// "Gedanken-experiments on sequential machines", 1956).
#include "text/grammar/json_language.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "text/utf8.h"

namespace orlop::schema {
namespace {

constexpr size_t max_language_states = 60'000;

struct Nfa {
  struct Edge {
    uint32_t first, last;
    int32_t to;
  };
  struct State {
    std::vector<int32_t> free;  // moves that read nothing
    std::vector<Edge> edges;
  };
  std::vector<State> states;
};

class NfaBuilder {
 public:
  NfaBuilder(const Rules& rules, Nfa& nfa, Work& work) : rules_(rules), nfa_(nfa), work_(work) {}

  int32_t state() {
    work_.spend(32);
    nfa_.states.emplace_back();
    return static_cast<int32_t>(nfa_.states.size() - 1);
  }

  // From `from`, after a text of e; returns where that is.
  int32_t add(Expr e, int32_t from) {
    work_.spend(1);
    const Rules::Node& node = rules_.nodes()[static_cast<size_t>(e)];
    switch (node.kind) {
      case Rules::Kind::empty:
        return from;
      case Rules::Kind::literal: {
        const std::string_view bytes =
            std::string_view(rules_.bytes()).substr(node.begin, node.count);
        for (size_t pos = 0; pos < bytes.size();) {
          const Utf8Step step = utf8_step(bytes, pos);
          if (!step.whole) fail(Status::internal, "language: a literal that is not UTF-8");
          pos += step.length;
          from = read(from, step.code, step.code, -1);
        }
        return from;
      }
      case Rules::Kind::chars: {
        const int32_t to = state();
        for (uint32_t i = 0; i < node.count; ++i) {
          const CharRange& r = rules_.ranges()[node.begin + i];
          read(from, r.first, r.last, to);
        }
        return to;
      }
      case Rules::Kind::sequence:
        for (uint32_t i = 0; i < node.count; ++i) from = add(rules_.parts()[node.begin + i], from);
        return from;
      case Rules::Kind::choice: {
        const int32_t to = state();
        for (uint32_t i = 0; i < node.count; ++i) {
          const int32_t start = state();
          free(from, start);
          free(add(rules_.parts()[node.begin + i], start), to);
        }
        return to;
      }
      case Rules::Kind::repeat: {
        const Expr what = rules_.parts()[node.begin];
        for (int32_t i = 0; i < node.a; ++i) from = add(what, from);
        if (node.b == Rules::unbounded) {
          const int32_t loop = state();
          free(from, loop);
          free(add(what, loop), loop);
          return loop;
        }
        if (node.a == node.b) return from;
        const int32_t to = state();
        free(from, to);
        for (int32_t i = node.a; i < node.b; ++i) {
          from = add(what, from);
          free(from, to);
        }
        return to;
      }
      case Rules::Kind::call:
        fail(Status::internal, "language: an expression that calls a rule");
    }
    return from;
  }

 private:
  void free(int32_t from, int32_t to) {
    work_.spend(1);
    nfa_.states[static_cast<size_t>(from)].free.push_back(to);
  }
  int32_t read(int32_t from, uint32_t first, uint32_t last, int32_t to) {
    work_.spend(1);
    if (to < 0) to = state();
    nfa_.states[static_cast<size_t>(from)].edges.push_back({first, last, to});
    return to;
  }

  const Rules& rules_;
  Nfa& nfa_;
  Work& work_;
};

void close_set(const Nfa& nfa, std::vector<int32_t>& set, std::vector<uint32_t>& seen,
               uint32_t round, Work& work) {
  for (const int32_t s : set) seen[static_cast<size_t>(s)] = round;
  for (size_t i = 0; i < set.size(); ++i) {
    const auto& moves = nfa.states[static_cast<size_t>(set[i])].free;
    work.spend(1 + moves.size());
    for (const int32_t t : moves) {
      if (seen[static_cast<size_t>(t)] == round) continue;
      seen[static_cast<size_t>(t)] = round;
      set.push_back(t);
    }
  }
  std::ranges::sort(set);
}

// Appends, joined to the last edge where it goes on from it.
void append(std::vector<Language::Edge>& edges, uint32_t first, uint32_t last, int32_t to) {
  if (!edges.empty() && edges.back().to == to && edges.back().last + 1 == first)
    edges.back().last = last;
  else
    edges.push_back({first, last, to});
}

}  // namespace

void Work::spend(uint64_t steps) {
  if (steps > left)
    fail(Status::unsupported, where, ": not supported: the automaton for it grows too large");
  left -= steps;
}

Language Language::of(const Rules& rules, Expr expr, Work& work) {
  Nfa nfa;
  NfaBuilder builder(rules, nfa, work);
  const int32_t start = builder.state();
  const int32_t end = builder.add(expr, start);

  Language out;
  std::map<std::vector<int32_t>, int32_t> known, raw;
  std::vector<std::vector<int32_t>> sets;
  std::vector<uint32_t> seen(nfa.states.size(), 0);
  uint32_t round = 0;
  const auto state_of = [&](std::vector<int32_t> set) {
    const std::vector<int32_t> key = set;
    if (const auto it = raw.find(key); it != raw.end()) return it->second;
    close_set(nfa, set, seen, ++round, work);
    const auto [it, fresh] = known.emplace(set, static_cast<int32_t>(sets.size()));
    if (fresh) {
      work.spend(8 + set.size());
      if (sets.size() >= max_language_states) work.spend(work.left + 1);
      out.states_.emplace_back();
      out.states_.back().label = std::ranges::binary_search(set, end);
      sets.push_back(std::move(set));
    }
    raw.emplace(key, it->second);
    return it->second;
  };
  state_of({start});
  struct Event {
    uint32_t at;
    bool begins;
    int32_t to;
  };
  std::vector<Event> events;
  for (size_t s = 0; s < sets.size(); ++s) {
    events.clear();
    for (const int32_t n : sets[s])
      for (const Nfa::Edge& e : nfa.states[static_cast<size_t>(n)].edges) {
        events.push_back({e.first, true, e.to});
        events.push_back({e.last + 1, false, e.to});
      }
    work.spend(4 * events.size() + 1);
    std::ranges::sort(events, {}, &Event::at);
    std::map<int32_t, int32_t> active;  // how many edges lead there now
    for (size_t i = 0; i < events.size();) {
      const uint32_t at = events[i].at;
      for (; i < events.size() && events[i].at == at; ++i) {
        int32_t& count = active[events[i].to];
        count += events[i].begins ? 1 : -1;
        if (count == 0) active.erase(events[i].to);
      }
      if (active.empty()) continue;
      work.spend(active.size() + 4);
      std::vector<int32_t> target;
      for (const auto& [to, count] : active) target.push_back(to);
      const int32_t to = state_of(std::move(target));
      append(out.states_[s].edges, at, events[i].at - 1, to);
    }
  }
  out.minimize(work);
  return out;
}

Language Language::of_texts(const std::vector<std::string>& texts, Work& work) {
  Language out;
  std::vector<std::map<uint32_t, int32_t>> next(1);
  out.states_.emplace_back();
  for (const std::string& text : texts) {
    size_t s = 0;
    for (size_t pos = 0; pos < text.size();) {
      work.spend(8);
      const Utf8Step step = utf8_step(text, pos);
      pos += std::max(step.length, 1u);
      const auto [it, fresh] = next[s].emplace(step.code, static_cast<int32_t>(next.size()));
      s = static_cast<size_t>(it->second);
      if (fresh) {
        next.emplace_back();
        out.states_.emplace_back();
      }
    }
    out.states_[s].label = 1;
  }
  for (size_t s = 0; s < next.size(); ++s)
    for (const auto& [code, to] : next[s]) out.states_[s].edges.push_back({code, code, to});
  return out;
}

Language Language::within(int64_t least, int64_t most, Work& work) const {
  const int64_t last = most < 0 ? least : most;  // longer texts are told apart no more
  Language out;
  std::map<std::pair<int32_t, int64_t>, int32_t> known;
  std::vector<std::pair<int32_t, int64_t>> pairs;  // a state, and how many came
  const auto state_of = [&](int32_t s, int64_t count) {
    const auto [it, fresh] = known.emplace(std::pair{s, count}, static_cast<int32_t>(pairs.size()));
    if (fresh) {
      work.spend(16);
      if (pairs.size() >= max_language_states) work.spend(work.left + 1);
      pairs.emplace_back(s, count);
      out.states_.emplace_back();
      out.states_.back().label = count >= least && states_[static_cast<size_t>(s)].label;
    }
    return it->second;
  };
  state_of(0, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [s, count] = pairs[i];
    if (most >= 0 && count == most) continue;
    for (const Edge& e : states_[static_cast<size_t>(s)].edges) {
      work.spend(1);
      const int32_t to = state_of(e.to, std::min(count + 1, last));
      out.states_[i].edges.push_back({e.first, e.last, to});
    }
  }
  out.trim(work);  // few are equal, and telling costs the square of the length
  return out;
}

Language Language::product(const std::vector<const Language*>& languages, bool all, Work& work) {
  using Tuple = std::vector<int32_t>;  // a state of each, -1: none fits any more
  const size_t n = languages.size();
  Language out;
  std::map<Tuple, int32_t> known;
  std::vector<Tuple> tuples;
  const auto state_of = [&](const Tuple& tuple) {
    const auto [it, fresh] = known.emplace(tuple, static_cast<int32_t>(tuples.size()));
    if (fresh) {
      work.spend(8 * n);
      if (tuples.size() >= max_language_states) work.spend(work.left + 1);
      State s;
      for (size_t i = 0; i < n; ++i)
        if (tuple[i] >= 0 && languages[i]->states_[static_cast<size_t>(tuple[i])].label)
          s.label |= uint64_t{1} << i;
      if (all && s.label != (uint64_t{2} << (n - 1)) - 1) s.label = 0;
      out.states_.push_back(std::move(s));
      tuples.push_back(tuple);
    }
    return it->second;
  };
  state_of(Tuple(n, 0));
  std::vector<size_t> at(n);
  for (size_t s = 0; s < tuples.size(); ++s) {
    const Tuple from = tuples[s];
    std::ranges::fill(at, size_t{0});
    Tuple to(n);
    for (uint32_t code = 0; code <= max_code;) {
      work.spend(2 * n + 4);
      uint32_t last = max_code;
      bool dead = false;
      for (size_t i = 0; i < n; ++i) {
        to[i] = -1;
        if (from[i] >= 0) {
          const auto& edges = languages[i]->states_[static_cast<size_t>(from[i])].edges;
          while (at[i] < edges.size() && edges[at[i]].last < code) ++at[i];
          if (at[i] < edges.size()) {
            const Edge& e = edges[at[i]];
            if (e.first <= code) to[i] = e.to;
            last = std::min(last, e.first <= code ? e.last : e.first - 1);
          }
        }
        dead |= to[i] < 0;
      }
      if (code < 0xd800) last = std::min(last, 0xd7ffu);
      const bool surrogate = code >= 0xd800 && code <= 0xdfff;  // in no text
      if (surrogate) last = std::min(last, 0xdfffu);
      if (!surrogate && (!dead || !all)) {
        const int32_t target = state_of(to);
        append(out.states_[s].edges, code, last, target);
      }
      code = last + 1;
    }
  }
  if (all) out.minimize(work);
  return out;
}

Language Language::only(uint64_t label, Work& work) const {
  Language out = *this;
  for (State& s : out.states_) s.label = s.label == label;
  out.minimize(work);
  return out;
}

// Without states from which no text ends, and those that no text reaches.
void Language::trim(Work& work) {
  const size_t n = states_.size();
  std::vector<std::vector<int32_t>> before(n);
  size_t edges = 0;
  for (size_t s = 0; s < n; ++s)
    for (const Edge& e : states_[s].edges) {
      before[static_cast<size_t>(e.to)].push_back(static_cast<int32_t>(s));
      ++edges;
    }
  work.spend(2 * (edges + n));
  std::vector<char> useful(n, 0);
  std::vector<int32_t> open;
  for (size_t s = 0; s < n; ++s)
    if (states_[s].label) {
      useful[s] = 1;
      open.push_back(static_cast<int32_t>(s));
    }
  while (!open.empty()) {
    const size_t s = static_cast<size_t>(open.back());
    open.pop_back();
    for (const int32_t p : before[s])
      if (!useful[static_cast<size_t>(p)]) {
        useful[static_cast<size_t>(p)] = 1;
        open.push_back(p);
      }
  }
  std::vector<int32_t> number(n, -1);
  std::vector<size_t> order = {0};
  number[0] = 0;
  std::vector<State> kept;
  for (size_t i = 0; i < order.size(); ++i) {
    State s;
    s.label = states_[order[i]].label != 0;
    for (const Edge& e : states_[order[i]].edges) {
      const size_t to = static_cast<size_t>(e.to);
      if (!useful[to]) continue;
      if (number[to] < 0) {
        number[to] = static_cast<int32_t>(order.size());
        order.push_back(to);
      }
      append(s.edges, e.first, e.last, number[to]);
    }
    kept.push_back(std::move(s));
  }
  states_ = std::move(kept);
}

// Equal states become one.
void Language::minimize(Work& work) {
  trim(work);
  const size_t n = states_.size();
  std::vector<int32_t> group(n);
  for (size_t s = 0; s < n; ++s) group[s] = states_[s].label != 0;
  for (size_t groups = 0;;) {
    // A group's number, then its edges with the groups that they lead to.
    std::map<std::vector<uint32_t>, int32_t> known;
    std::vector<int32_t> fresh(n);
    for (size_t s = 0; s < n; ++s) {
      std::vector<Edge> merged;
      for (const Edge& e : states_[s].edges)
        append(merged, e.first, e.last, group[static_cast<size_t>(e.to)]);
      work.spend(merged.size() + 4);
      std::vector<uint32_t> key = {static_cast<uint32_t>(group[s])};
      for (const Edge& e : merged) {
        key.push_back(e.first);
        key.push_back(e.last);
        key.push_back(static_cast<uint32_t>(e.to));
      }
      fresh[s] = known.emplace(std::move(key), static_cast<int32_t>(known.size())).first->second;
    }
    group = std::move(fresh);
    if (known.size() == groups) break;
    groups = known.size();
  }
  // The start's group first.
  std::vector<int32_t> number(n, -1);
  std::vector<size_t> order;
  const auto number_of = [&](size_t s) {
    int32_t& k = number[static_cast<size_t>(group[s])];
    if (k < 0) {
      k = static_cast<int32_t>(order.size());
      order.push_back(s);
    }
    return k;
  };
  number_of(0);
  std::vector<State> kept;
  for (size_t i = 0; i < order.size(); ++i) {
    State s;
    s.label = states_[order[i]].label;
    for (const Edge& e : states_[order[i]].edges)
      append(s.edges, e.first, e.last, number_of(static_cast<size_t>(e.to)));
    kept.push_back(std::move(s));
  }
  states_ = std::move(kept);
}

uint64_t Language::label_of(std::string_view text) const {
  size_t s = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    pos += std::max(step.length, 1u);
    const auto& edges = states_[s].edges;
    const auto it = std::ranges::lower_bound(edges, step.code, {}, &Edge::last);
    if (it == edges.end() || it->first > step.code) return 0;
    s = static_cast<size_t>(it->to);
  }
  return states_[s].label;
}

bool Language::empty() const {
  return std::ranges::none_of(states_, [](const State& s) { return s.label != 0; });
}

std::vector<uint64_t> Language::labels() const {
  std::vector<uint64_t> out;
  for (const State& s : states_) out.push_back(s.label);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace orlop::schema
