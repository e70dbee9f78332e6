// The host side of a rank: its share of the cores, its memory, and the allocator's settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gputrain::device {

/// How many threads a rank computes with and why.
struct CpuThreads {
  int count = 1;
  std::string reason;  // "8 cores for 2 ranks", "OMP_NUM_THREADS"
};

/// The processor's model name, "Intel(R) Xeon(R) Platinum 8480C".
std::string cpu_name();

/// The vector instructions that kernels are compiled for: none beyond the build's, AVX2 with FMA, AVX-512 F, DQ and VL.
enum class VectorUnits { base, avx2, avx512 };

/// The best that this processor has; those below it are there as well.
VectorUnits vector_units();

/// Whether the processor is an AMD: libraries of Intel's do not use all that it has.
bool is_amd();

/// Physical cores this process may run on (affinity mask, container quota).
int available_cores();

/// A rank's share of the cores, at least 1. OMP_NUM_THREADS, when set to a number, decides alone; a launcher that has
/// already bound this rank to cores, its own or those of some of the ranks, is respected. `allotted_cpus`: logical CPUs
/// that a scheduler gave to all ranks on this host together, 0 when nobody said.
CpuThreads plan_cpu_threads(int local_world_size, int allotted_cpus = 0);

/// Of `ranks` on a host, bound evenly or not at all to `own` cores each out of `host`: how many have the same ones.
int ranks_on_same_cores(int own, int host, int ranks);

/// Makes ATen compute with so many threads. Call before the first operator.
void set_cpu_threads(const CpuThreads& threads);

/// The most memory of this process that ever was in RAM.
int64_t peak_resident_bytes();

/// Memory of the machine, or of the container where that is less.
int64_t host_memory_bytes();

/// What this process may still take before the kernel ends something: free memory of the machine, of every control
/// group above the process, and of its own limits (ulimit -v, -d). Files that the kernel only caches count as free.
int64_t available_host_bytes(const std::filesystem::path& proc = "/proc",
                             const std::filesystem::path& control_groups = "/sys/fs/cgroup");

}  // namespace gputrain::device
