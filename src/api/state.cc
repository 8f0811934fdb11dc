// orlop_state_save and orlop_state_load: prefixes of the prefix cache as bytes and back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "api/prompt.h"
#include "base/checked.h"
#include "format/state.h"

using namespace orlop;
using namespace orlop::api;

namespace {

// Copied between two steps at once: what a save delays everyone else by.
constexpr size_t slice_bytes = size_t{16} << 20;
// How often evicted pages are computed again before a save gives up.
constexpr int max_refills = 8;

std::string reason(int error) {
  return std::generic_category().message(error);
}

std::string path_of(const orlop_state_params& p) {
  const std::string path(text_in(p.path, p.path_len, "path"));
  if (path.find('\0') != std::string::npos)
    fail(Status::invalid_argument, "path: a path holds no NUL");
  return path;
}

std::string key_of(const orlop_state_params& p) {
  const std::string key(text_in(static_cast<const char*>(p.key), p.key_len, "key"));
  if ((p.key || p.key_len) && (key.size() < min_state_key || key.size() > max_state_key))
    fail(Status::invalid_argument, "key: must have ", min_state_key, " to ", max_state_key,
         " bytes, got ", key.size());
  return key;
}

void need_prefix_cache(const Core& core) {
  if (!core.config().prefix_cache)
    fail(Status::unsupported, "states need enable_prefix_cache, which is false for this engine");
}

// The better of what lies under the caller's own identity and of what everyone shares.
PrefixCache::Hit best_match(PrefixCache& cache, const std::string& identity,
                            std::span<const int32_t> tokens) {
  const auto limit = static_cast<int32_t>(tokens.size());
  PrefixCache::Hit own = cache.match(identity, tokens, limit);
  if (own.tokens == limit) return own;
  PrefixCache::Hit shared = cache.match(shared_identity, tokens, limit);
  return shared.tokens > own.tokens ? shared : own;
}

// ---- saving ------------------------------------------------------------------------------------

// Bytes on their way into a file that appears whole or not at all.
class NewFile {
 public:
  // Replaces a regular file (a link's target, keeping its permissions), never a device or a pipe.
  explicit NewFile(std::string path) : path_(std::move(path)) {
    if (char* real = ::realpath(path_.c_str(), nullptr)) {
      path_ = real;
      std::free(real);
    }
    struct stat now {};
    const bool exists = ::stat(path_.c_str(), &now) == 0;
    if (exists && !S_ISREG(now.st_mode))
      fail(Status::invalid_argument, "path: ", path_, " exists and is no regular file");
    temporary_ = path_ + ".XXXXXX";
    fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
    if (fd_ >= 0 && exists) static_cast<void>(!::fchmod(fd_, now.st_mode & 07777));
    if (fd_ < 0)
      fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io, path_,
           ": cannot be written: ", reason(errno));
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), slice_bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(Status::io, path_, ": writing failed: ", reason(errno));
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void keep() {
    if (::fsync(fd_) != 0) fail(Status::io, path_, ": writing failed: ", reason(errno));
    const int closed = ::close(fd_);
    fd_ = -1;
    if (closed != 0) fail(Status::io, path_, ": writing failed: ", reason(errno));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      fail(Status::io, path_, ": cannot be replaced: ", reason(errno));
    temporary_.clear();
  }

 private:
  std::string path_, temporary_;
  int fd_ = -1;
};

// The request that leaves the prefix in the cache; waits for its end.
void compute(Core& core, const std::vector<int32_t>& tokens, const std::string& salt,
             int64_t deadline_us, int64_t now_ns) {
  GivenParams given;
  given.max_tokens = 0;
  given.cache_salt = salt;
  given.deadline_us = deadline_us;
  given.seed = 0;
  ParamFacts facts;
  facts.vocab = core.vocab();
  facts.prompt_tokens = static_cast<int64_t>(tokens.size());
  facts.context = core.engine().capacity();
  facts.now_ns = now_ns;
  const auto request = core.engine().submit(tokens, resolve_params(given, core.defaults(), facts),
                                            nullptr, nullptr, 0);
  const Output* out = nullptr;
  while (request->get(-1, &out) == Status::ok)
    if (out->finish == Finish::error) throw Error(out->error, out->message);
}

struct Saved {
  std::vector<int32_t> tokens;
  std::string salt;
  int64_t deadline_us = 0, now_ns = 0;
};

// Which pages of each group exist: those behind a window do not.
std::vector<StateGroup> groups_of(const PrefixCache::Hit& hit, const Model& model) {
  std::vector<StateGroup> groups;
  for (size_t g = 0; g < model.groups().size(); ++g) {
    const std::vector<int32_t>& pages = hit.pages[g];
    StateGroup group{model.groups()[g].page_bytes, 0};
    while (group.first < pages.size() && pages[group.first] < 0) ++group.first;
    groups.push_back(group);
  }
  return groups;
}

// Calls job(hit) on the owner thread with the whole prefix in the cache.
template <class Job>
void with_prefix(Core& core, const Saved& s, int& refills, Job&& job) {
  for (;;) {
    bool found = false;
    core.engine().between_steps([&](Scheduler& scheduler, Model& model) {
      const PrefixCache::Hit hit = best_match(scheduler.cache(), s.salt, s.tokens);
      if (hit.tokens != static_cast<int32_t>(s.tokens.size())) return;
      found = job(hit, model);
    });
    if (found) return;
    if (refills++ == max_refills)
      fail(Status::out_of_memory,
           "the KV cache is too full to keep the prefix while it is saved (kv_bytes)");
    compute(core, s.tokens, s.salt, s.deadline_us, s.now_ns);
  }
}

void save(Core& core, const Saved& s, const std::string& key, const StateWriter::Sink& sink) {
  StateHead head;
  head.fields = core.state_fields();
  head.page_tokens = static_cast<uint32_t>(core.config().block_size);
  head.tokens = s.tokens;
  int refills = 0;
  with_prefix(core, s, refills, [&](const PrefixCache::Hit& hit, const Model& model) {
    head.groups = groups_of(hit, model);
    return true;
  });
  StateWriter writer(head, key, sink);
  std::vector<std::byte> slice;
  for (size_t g = 0; g < head.groups.size(); ++g) {
    const size_t bytes = head.groups[g].page_bytes;
    const auto at_once = static_cast<uint32_t>(std::max<size_t>(1, slice_bytes / bytes));
    for (uint32_t begin = head.groups[g].first; begin < head.pages(); begin += at_once) {
      const uint32_t end = std::min(begin + at_once, head.pages());
      slice.resize((end - begin) * bytes);
      with_prefix(core, s, refills, [&](const PrefixCache::Hit& hit, Model& model) {
        const auto& pages = hit.pages[g];
        for (uint32_t i = begin; i < end; ++i)
          if (pages[i] < 0) return false;
        try {
          for (uint32_t i = begin; i < end; ++i)
            model.read_page(static_cast<int>(g), pages[i], slice.data() + (i - begin) * bytes);
        } catch (...) {
          model.sync();  // what is on its way arrives while there is a place for it
          throw;
        }
        model.sync();
        return true;
      });
      for (uint32_t i = begin; i < end; ++i)
        writer.page(std::span(slice).subspan((i - begin) * bytes, bytes));
    }
  }
  writer.end();
}

// ---- loading -----------------------------------------------------------------------------------

// A file's bytes in private memory: nothing that happens to the file later changes what was
// checked.
std::vector<std::byte> read_file(const std::string& path, uint64_t most) {
  const auto file = MappedFile::open(path, LoadMode::mmap);
  const uint64_t size = file->bytes().size();
  if (size > most)
    fail(Status::bad_format, path, ": has ", size, " bytes; a state of this engine has at most ",
         most);
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  // Read, not copied from the mapping: a file that shrinks meanwhile is an error, no signal.
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) ::close(fd);
    }
  } in{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (in.fd < 0) fail(Status::io, path, ": ", reason(errno));
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::read(in.fd, bytes.data() + at, std::min(bytes.size() - at, slice_bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Status::io, path, ": reading failed: ", reason(errno));
    if (n == 0) fail(Status::io, path, ": became shorter while it was read");
    at += static_cast<size_t>(n);
  }
  return bytes;
}

// What a state of the longest prefix has, head included.
uint64_t most_bytes(const Core& core) {
  const auto pages =
      static_cast<uint64_t>(div_up<int64_t>(core.max_context(), core.config().block_size));
  uint64_t sum = (uint64_t{64} << 10) + static_cast<uint64_t>(core.max_context()) * 4;
  for (const CacheGroup& g : core.model().groups()) sum += pages * g.page_bytes;
  return sum;
}

// Field by field: the message names the first that differs.
void check_fields(const StateFields& state, const StateFields& engine) {
  for (const auto& [name, value] : engine) {
    const auto at = std::find_if(state.begin(), state.end(),
                                 [&, &n = name](const auto& f) { return f.first == n; });
    if (at == state.end()) fail(Status::bad_format, "state: lacks ", name);
    if (at->second != value)
      fail(Status::unsupported, "state: ", name, " is ", at->second, ", the engine's is ", value);
  }
  if (state.size() != engine.size())
    fail(Status::bad_format, "state: has ", state.size(), " fields, not ", engine.size());
}

void check_shape(const StateHead& head, const Core& core) {
  const auto& groups = core.model().groups();
  if (static_cast<int32_t>(head.page_tokens) != core.config().block_size)
    fail(Status::bad_format, "state: ", head.page_tokens,
         " tokens a page are not what its block_size says");
  if (head.groups.size() != groups.size())
    fail(Status::bad_format, "state: has ", head.groups.size(), " cache groups, the model ",
         groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    if (head.groups[g].page_bytes != groups[g].page_bytes)
      fail(Status::bad_format, "state: pages of group ", g, " have ", head.groups[g].page_bytes,
           " bytes, the engine's ", groups[g].page_bytes);
    // What the next position sees of earlier ones.
    const int64_t n = static_cast<int64_t>(head.tokens.size());
    const int64_t seen = groups[g].window ? std::max<int64_t>(0, n - groups[g].window + 1) : 0;
    if (head.groups[g].first > seen / core.config().block_size)
      fail(Status::bad_format, "state: group ", g, " lacks pages before page ",
           head.groups[g].first);
  }
  if (static_cast<int64_t>(head.tokens.size()) > core.max_context())
    fail(Status::context_overflow, "state: ", head.tokens.size(),
         " tokens are more than the context of ", core.max_context());
  for (const int32_t id : head.tokens)
    if (id < 0 || id >= core.vocab())
      fail(Status::bad_format, "state: token ", id, " is outside the vocabulary of ", core.vocab());
}

// Puts the pages where the cache says; returns how many it lacked.
uint64_t adopt(Core& core, const StateView& view, const std::string& identity) {
  uint64_t added = 0;
  core.engine().between_steps([&](Scheduler& scheduler, Model& model) {
    const PrefixCache::Hit hit = scheduler.cache().adopt(identity, view.head.tokens);
    try {
      for (size_t g = 0; g < view.head.groups.size(); ++g)
        for (uint32_t i = 0; i < hit.pages[g].size(); ++i) {
          if (hit.pages[g][i] < 0) continue;
          if (i < view.head.groups[g].first)
            fail(Status::bad_format, "state: group ", g, " lacks page ", i);
          model.write_page(static_cast<int>(g), hit.pages[g][i], view.page(g, i).data());
          ++added;
        }
      model.sync();
    } catch (...) {
      scheduler.cache().clear();  // nothing half written stays
      throw;
    }
  });
  return added;
}

}  // namespace

int32_t orlop_state_save(orlop_engine* engine, const orlop_state_params* params, orlop_buffer** out,
                         orlop_error* err) {
  return guarded(err, [&] {
    if (out) *out = nullptr;
    const int64_t now_ns = monotonic_ns();
    const Hold<orlop_engine> e(engine, "engine");
    const std::shared_ptr<Core> core = e->core();
    const orlop_state_params p = read_sized(params, orlop_state_params{}, "params");
    if (p.flags & ~(ORLOP_GENERATE_NO_BOS | ORLOP_GENERATE_PLAIN))
      fail(Status::unsupported, "flags: bits ", p.flags, " are unknown");
    const std::string path = path_of(p), key = key_of(p);
    if (path.empty() && !out) fail(Status::invalid_argument, "out: is NULL, and there is no path");
    need_prefix_cache(*core);
    Saved s;
    if (p.deadline_us < 0)
      fail(Status::invalid_argument, "deadline_us: must be at least 0, got ", p.deadline_us);
    s.salt = salt_in(p.cache_salt, p.cache_salt_len);
    s.deadline_us = p.deadline_us;
    s.now_ns = now_ns;
    s.tokens = prompt_of(p, *core);
    const auto block = static_cast<size_t>(core->config().block_size);
    const size_t given = s.tokens.size();
    s.tokens.resize(given / block * block);
    if (s.tokens.empty())
      fail(Status::invalid_argument, "prompt: its ", given, " tokens fill no page of block_size ",
           block);
    if (!path.empty()) {
      NewFile file(path);
      save(*core, s, key, [&](std::span<const std::byte> b) { file.write(b); });
      file.keep();
    } else {
      std::string bytes;
      save(*core, s, key, [&](std::span<const std::byte> b) {
        bytes.append(reinterpret_cast<const char*>(b.data()), b.size());
      });
      *out = new_buffer(std::move(bytes));
    }
    return Status::ok;
  });
}

int32_t orlop_state_load(orlop_engine* engine, const void* data, size_t len,
                         const orlop_state_params* params, orlop_state_info* info,
                         orlop_error* err) {
  return guarded(err, [&] {
    if (info) checked_struct_size(info, "info");
    const Hold<orlop_engine> e(engine, "engine");
    const std::shared_ptr<Core> core = e->core();
    const orlop_state_params p = read_sized(params, orlop_state_params{}, "params");
    if (p.flags) fail(Status::unsupported, "flags: bits ", p.flags, " are unknown");
    if (p.text || p.text_len || p.tokens || p.n_tokens || p.messages || p.messages_len)
      fail(Status::invalid_argument, "prompt: a state that is loaded brings its own");
    const std::string path = path_of(p), key = key_of(p),
                      salt = salt_in(p.cache_salt, p.cache_salt_len);
    const std::string_view given = text_in(static_cast<const char*>(data), len, "data");
    if (path.empty() == given.empty())
      fail(Status::invalid_argument, "data: exactly one of data and path is needed");
    need_prefix_cache(*core);
    if (key.empty() && salt.empty())
      fail(Status::invalid_argument,
           "cache_salt: is needed where no key is given: the state serves that salt alone");

    std::vector<std::byte> read;
    if (!path.empty()) read = read_file(path, most_bytes(*core));
    const std::span<const std::byte> bytes =
        path.empty() ? std::as_bytes(std::span(given.data(), given.size()))
                     : std::span(std::as_const(read));
    const StateView view = parse_state(bytes, path.empty() ? "state" : path.c_str());
    if (!view.checksum_holds())
      fail(Status::bad_format, "state: is damaged: its checksum does not hold");
    if (!key.empty() && !view.is_signed)
      fail(Status::invalid_argument, "key: the state carries no signature");
    if (!key.empty() && !view.signature_holds(key))
      fail(Status::invalid_argument, "key: the state's signature does not hold under it");
    check_fields(view.head.fields, core->state_fields());
    check_shape(view.head, *core);

    orlop_state_info o{};
    o.shared = !key.empty();
    o.n_tokens = view.head.tokens.size();
    for (const StateGroup& g : view.head.groups) o.pages += view.head.pages() - g.first;
    o.pages_added = adopt(*core, view, key.empty() ? salt : shared_identity);
    if (info) write_sized(info, o);
    return Status::ok;
  });
}
