// The host side of a rank: CPU threads, vector instructions and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gputrain::device {

/// Number of compute threads of a rank, and the reason.
struct CpuThreads {
  int count = 1;
  std::string reason;  // "8 cores for 2 ranks", "OMP_NUM_THREADS"
};

/// Returns the processor's model name, "Intel(R) Xeon(R) Platinum 8480C".
std::string cpu_name();

/// Vector instructions of a kernel: the build's baseline, AVX2 with FMA, or AVX-512 F, DQ and VL.
enum class VectorUnits { base, avx2, avx512 };

/// Returns the widest units that this processor supports; it supports the narrower ones too.
VectorUnits vector_units();

/// Returns whether the processor is from AMD: Intel's libraries do not use all its features.
bool is_amd();

/// Returns the number of physical cores this process may use (affinity mask, container quota).
int available_cores();

/// Returns a rank's share of the logical CPUs, at least 1: of those that a launcher has bound it to, else of all
/// (affinity mask, container quota).
int cpus_of_rank(int local_world_size);

/// Returns a rank's share of the cores, at least 1. A number in OMP_NUM_THREADS overrides everything. If a launcher has
/// bound this rank to cores, alone or together with other ranks, only those count. `allotted_cpus`: logical CPUs that a
/// scheduler gave to all ranks of this host together; 0 if unknown.
CpuThreads plan_cpu_threads(int local_world_size, int allotted_cpus = 0);

/// Returns how many ranks share the same cores, if each of `ranks` is bound to `own` of the host's `host` cores, evenly
/// or not at all.
int ranks_on_same_cores(int own, int host, int ranks);

/// Sets ATen's number of threads. Call before the first operator.
void set_cpu_threads(const CpuThreads& threads);

int64_t peak_resident_bytes();
/// Returns the present resident memory of this process; 0 if the system does not tell.
int64_t resident_bytes();

/// Returns the memory of the machine, or the container's limit if that is less.
int64_t host_memory_bytes();

/// Returns the memory that this process can still take before the kernel kills something: the least free memory of the
/// machine, of each control group above the process, and of its limits (ulimit -v, -d). The page cache counts as free.
int64_t available_host_bytes(const std::filesystem::path& proc = "/proc",
                             const std::filesystem::path& control_groups = "/sys/fs/cgroup");

}  // namespace gputrain::device
