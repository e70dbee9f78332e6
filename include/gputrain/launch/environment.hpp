// Reads from the environment what a launcher says: the rank of this process, the number of ranks, and where they meet.
//
// From inner to outer launcher: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, or set by hand); Open MPI;
// PMI (MPICH, Intel MPI, Cray); PMIx; Slurm's srun. If several are set and the outer one only started the inner one,
// the inner one counts alone; otherwise they complete each other and must agree. MASTER_ADDR and MASTER_PORT always
// decide; one rank alone needs neither. Without them the ranks of one host meet on its loopback, those of srun on the
// first node, at a port derived from the job id.
#pragma once

#include <string>

#include "gputrain/comm/rendezvous.hpp"
#include "gputrain/core/process.hpp"

namespace gputrain::launch {

struct Launch {
  std::string launcher;  // "alone", "torchrun", "Open MPI", "PMI", "PMIx", "Slurm", or "environment": set by hand
  comm::Rendezvous rendezvous;
  int allotted_cpus = 0;  // logical CPUs a scheduler gave to all ranks on this host; 0: unknown
  std::string remark;     // for the user; empty: none
};

/// Reads the environment; alone without any of the variables. Throws Error(usage), showing the values, when they are
/// incomplete, not numbers, out of range, or contradict each other.
Launch read_environment(const Lookup& lookup);
Launch read_environment();  // of this process

}  // namespace gputrain::launch
