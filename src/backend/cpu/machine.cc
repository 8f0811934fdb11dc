// Formats: Linux's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/, proc(5), and
// Documentation/ABI/stable/sysfs-devices-node.
#include "backend/cpu/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/error.h"

namespace orlop::cpu {
namespace {

bool first_line(const std::string& path, std::string& line) {
  std::ifstream in(path);
  return static_cast<bool>(std::getline(in, line));
}

// One mounted hierarchy and where this process stands in it.
struct Group {
  bool v2 = false;
  std::string mount;  // with root before it
  std::string path;   // below mount, "" or "/a/b"
};

bool has_word(const std::string& list, const std::string& word) {
  std::stringstream in(list);
  std::string part;
  while (std::getline(in, part, ','))
    if (part == word) return true;
  return false;
}

// The groups that control `controller` ("cpu", "memory"): the v1 hierarchy of that name and the v2
// one, as far as they are mounted.
std::vector<Group> groups(const std::string& root, const std::string& controller) {
  std::string path_v1, path_v2;
  bool in_v1 = false, in_v2 = false;
  std::ifstream membership(root + "/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    const size_t a = line.find(':'), b = a == line.npos ? a : line.find(':', a + 1);
    if (b == line.npos) continue;
    const std::string names = line.substr(a + 1, b - a - 1), path = line.substr(b + 1);
    if (names.empty()) {
      in_v2 = true;
      path_v2 = path;
    } else if (has_word(names, controller)) {
      in_v1 = true;
      path_v1 = path;
    }
  }
  std::vector<Group> found;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // id parent major:minor root mountpoint options [tags] - type source superoptions
    std::stringstream in(line);
    std::string skip, mount_root, mount_point, word, type, source, super;
    in >> skip >> skip >> skip >> mount_root >> mount_point;
    while (in >> word && word != "-") continue;
    in >> type >> source >> super;
    const bool v2 = type == "cgroup2";
    if (!(v2 && in_v2) && !(type == "cgroup" && in_v1 && has_word(super, controller))) continue;
    Group g{v2, root + mount_point, v2 ? path_v2 : path_v1};
    // A container may see a part of the hierarchy only; its own path then starts with that part.
    if (mount_root != "/" && g.path.compare(0, mount_root.size(), mount_root) == 0)
      g.path.erase(0, mount_root.size());
    if (g.path == "/" || g.path.find("/..") != g.path.npos) g.path.clear();
    found.push_back(std::move(g));
  }
  return found;
}

// Calls f with the folder of the group and of each of its ancestors.
template <class F>
void walk_up(const Group& g, F&& f) {
  std::string path = g.path;
  for (;;) {
    f(g.mount + path);
    const size_t slash = path.rfind('/');
    if (slash == path.npos) return;
    path.erase(slash);
  }
}

uint64_t read_number(const std::string& path, uint64_t otherwise) {
  std::string line;
  if (!first_line(path, line)) return otherwise;
  std::stringstream in(line);
  uint64_t v;
  return in >> v ? v : otherwise;  // "max" is no number
}

// "0-3,8" -> {0, 1, 2, 3, 8}; what cannot be read ends the list.
std::vector<int> number_list(const std::string& path) {
  constexpr int most = 1 << 18;
  std::vector<int> numbers;
  std::string line;
  if (!first_line(path, line)) return numbers;
  std::stringstream in(line);
  for (int low, high; in >> low;) {
    high = low;
    if (in.peek() == '-' && !(in.ignore() >> high)) break;
    if (low < 0 || high >= most) break;
    for (int i = low; i <= high; ++i) numbers.push_back(i);
    if (in.peek() == ',') in.ignore();
  }
  return numbers;
}

}  // namespace

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // A mask larger than cpu_set_t's 1024 CPUs needs a larger buffer; EINVAL says so.
  for (size_t count = CPU_SETSIZE; count <= size_t{1} << 18; count *= 4) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    if (ok)
      for (size_t i = 0; i < count; ++i)
        if (CPU_ISSET_S(i, bytes, set)) cpus.push_back(static_cast<int>(i));
    CPU_FREE(set);
    if (ok) break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int physical_cores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string folder = cat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/");
    std::string siblings;
    if (!first_line(folder + "core_cpus_list", siblings) &&
        !first_line(folder + "thread_siblings_list", siblings))
      siblings = cat("cpu", cpu);  // unknown: a core of its own
    cores.insert(siblings);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

std::vector<int> memory_nodes(const std::string& root, const std::vector<int>& cpus) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::vector<int> nodes;
  for (const int node : number_list(folder + "online")) {
    const std::vector<int> near = number_list(cat(folder, "node", node, "/cpulist"));
    if (std::any_of(near.begin(), near.end(), [&](int cpu) {
          return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
        }))
      nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

double cpu_quota(const std::string& root) {
  double least = 0;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  };
  for (const Group& g : groups(root, "cpu"))
    walk_up(g, [&](const std::string& folder) {
      std::string line;
      if (g.v2) {
        double quota = 0, period = 0;
        if (first_line(folder + "/cpu.max", line))
          if (std::stringstream in(line); in >> quota >> period) take(quota, period);
      } else {
        double quota = -1;  // -1: none
        if (first_line(folder + "/cpu.cfs_quota_us", line))
          if (std::stringstream in(line); in >> quota)
            take(quota, static_cast<double>(read_number(folder + "/cpu.cfs_period_us", 0)));
      }
    });
  return least;
}

ThreadChoice choose_threads(const std::string& root, const std::vector<int>& cpus) {
  const int cores = physical_cores(root, cpus);
  const double quota = cpu_quota(root);
  int threads = cores;
  if (quota > 0) threads = std::min(threads, static_cast<int>(std::min(quota, 1e6)));
  threads = std::max(1, threads);
  std::string why = cat(cores, cores == 1 ? " core" : " cores");
  if (cpus.size() > static_cast<size_t>(cores)) why += cat(" of ", cpus.size(), " SMT threads");
  why += quota > 0 ? cat(", quota ", quota, " CPUs") : std::string(", quota none");
  return {threads, why};
}

uint64_t memory_available(const std::string& root) {
  uint64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.compare(0, 13, "MemAvailable:") == 0) {
      std::stringstream in(line.substr(13));
      uint64_t kib;
      if (in >> kib && kib < (uint64_t{1} << 50)) available = kib << 10;
    }
  for (const Group& g : groups(root, "memory"))
    walk_up(g, [&](const std::string& folder) {
      const uint64_t none = std::numeric_limits<uint64_t>::max();
      const uint64_t limit =
          read_number(folder + (g.v2 ? "/memory.max" : "/memory.limit_in_bytes"), none);
      if (limit == none) return;
      uint64_t used =
          read_number(folder + (g.v2 ? "/memory.current" : "/memory.usage_in_bytes"), 0);
      // Page cache counts as use but is given back on demand.
      std::ifstream stat(folder + "/memory.stat");
      const std::string key = g.v2 ? "inactive_file" : "total_inactive_file";
      std::string name;
      for (uint64_t v; stat >> name >> v;)
        if (name == key) used -= std::min(used, v);
      available = std::min(available, limit > used ? limit - used : 0);
    });
  return available;
}

ThreadChoice default_threads() { return choose_threads("", affinity_cpus()); }

}  // namespace orlop::cpu
