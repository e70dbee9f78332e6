#include "gputrain/device/host.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include <ATen/Parallel.h>

#include "gputrain/device/control_groups.hpp"

namespace gputrain::device {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<cpu_set_t> affinity_of(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(process, sizeof set, &set) != 0) return std::nullopt;
  return set;
}

// Two hardware threads of one core share its execution units, so they count as one.
int cores_in(const cpu_set_t& set) {
  std::set<std::string> cores;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const auto siblings = first_line(topology + "thread_siblings_list");
    cores.insert(siblings.value_or("cpu" + std::to_string(cpu)));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

int within_quota(int cores) {
  const auto quota = group_limits().cores;
  return quota ? std::min(cores, std::max(1, static_cast<int>(*quota + 0.5))) : cores;
}

/// Cores by affinity alone: of this rank, and of all ranks on this host together.
struct Binding {
  int own = 1, host = 1;
};

// mpirun and srun bind each rank to some cores; their own process, our parent, may use more. A scheduler's allotment,
// if known, replaces the parent's cores, because a job's cgroup is narrower than the daemon's.
Binding binding_of(int allotted_cpus) {
  const auto own = affinity_of(0), parent = affinity_of(::getppid());
  if (!own) return {};
  Binding binding{.own = cores_in(*own)};
  binding.host = std::max(binding.own, parent ? cores_in(*parent) : 1);
  if (allotted_cpus > 0) {
    const double cpus_per_core = static_cast<double>(CPU_COUNT(&*own)) / binding.own;
    binding.host = std::max(1, static_cast<int>(allotted_cpus / cpus_per_core + 0.5));
    binding.own = std::min(binding.own, binding.host);
  }
  return binding;
}

std::optional<int> threads_from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (end == text || count < 1 || count > 4096) return std::nullopt;
  return static_cast<int>(count);
}

}  // namespace

VectorUnits vector_units() {
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_avx2 && has_avx512 ? VectorUnits::avx512 : has_avx2 ? VectorUnits::avx2 : VectorUnits::base;
#else
  return VectorUnits::base;
#endif
}

bool is_amd() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

int available_cores() {
  const auto own = affinity_of(0);
  return within_quota(own ? cores_in(*own) : 1);
}

int cpus_of_rank(int local_world_size) {
  const auto own = affinity_of(0);
  if (!own) return 1;
  const int ranks = std::max(1, local_world_size);
  const Binding binding = binding_of(/*allotted_cpus=*/0);
  const int bound = CPU_COUNT(&*own) / ranks_on_same_cores(binding.own, binding.host, ranks);
  return std::max(1, std::min(bound, within_quota(bound * ranks) / ranks));
}

int ranks_on_same_cores(int own, int host, int ranks) {
  const int64_t wanted = int64_t{ranks} * own;
  return static_cast<int>(std::clamp<int64_t>((wanted + host - 1) / host, 1, ranks));
}

CpuThreads plan_cpu_threads(int local_world_size, int allotted_cpus) {
  if (const auto given = threads_from_environment()) return {*given, "OMP_NUM_THREADS"};
  const int ranks = std::max(1, local_world_size);
  const Binding binding = binding_of(allotted_cpus);
  const int sharing = ranks_on_same_cores(binding.own, binding.host, ranks);
  int cores = binding.own, sharers = sharing;
  if (const auto quota = group_limits().cores) {  // shared by all ranks in the container
    const int limit = std::max(1, static_cast<int>(*quota + 0.5));
    if (limit / ranks < cores / sharing) cores = limit, sharers = ranks;
  }
  CpuThreads threads{std::max(1, cores / sharers),
                     std::to_string(cores) + " cores for " + std::to_string(sharers) + " ranks"};
  const bool is_all = cores == available_cores();
  if (sharers == 1 && ranks == 1) threads.reason = is_all ? "all cores" : "allotted by the scheduler";
  if (sharers == 1 && ranks > 1) threads.reason = "bound by the launcher";
  return threads;
}

void set_cpu_threads(const CpuThreads& threads) { at::set_num_threads(threads.count); }

int64_t peak_resident_bytes() {
  // getrusage() would also count the program that called exec (torchrun's Python, for example), if its peak was higher.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t resident_bytes() {
  std::ifstream sizes("/proc/self/statm");
  int64_t all = 0, resident = 0;
  return sizes >> all >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t host_memory_bytes() {
  return std::min(int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), group_limits().memory_bytes);
}

}  // namespace gputrain::device
