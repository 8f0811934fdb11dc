// What this machine lets a process have: cores, CPU quota, memory. Linux's /proc, /sys and cgroups
// (v1 and v2); `root` is put before every path so that tests can lay out their own machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/threads.h"

namespace orlop::cpu {

// CPUs of the affinity mask of the calling thread, ascending.
std::vector<int> affinity_cpus();

// Cores that share no execution units (SMT siblings counted once) among `cpus`.
int physical_cores(const std::string& root, const std::vector<int>& cpus);

// The tightest CPU quota on the way up from this process's control group, in CPUs; 0: none.
double cpu_quota(const std::string& root);

// NUMA nodes whose memory is near any of `cpus`, ascending; empty where the system does not say.
std::vector<int> memory_nodes(const std::string& root, const std::vector<int>& cpus);

ThreadChoice choose_threads(const std::string& root, const std::vector<int>& cpus);

// Bytes that could still be allocated: MemAvailable and every control group's limit less its use.
uint64_t memory_available(const std::string& root);

}  // namespace orlop::cpu
