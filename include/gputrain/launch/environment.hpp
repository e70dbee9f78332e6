// Reads what a launcher says in the environment: which rank this process is, of how many, and where they meet.
//
// From the inside out: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, or set by hand); Open MPI; PMI (MPICH,
// Intel MPI, Cray); PMIx; Slurm's srun. Several may be set: an inner launcher that an outer one started counts alone,
// and else they complete each other and must not contradict each other. MASTER_ADDR and MASTER_PORT always decide;
// without them ranks of one host meet on its loopback, those of srun on the first node, at a port that follows from the
// job's id.
#pragma once

#include <string>

#include "gputrain/comm/rendezvous.hpp"
#include "gputrain/core/process.hpp"

namespace gputrain::launch {

struct Launch {
  std::string launcher;  // "alone", "torchrun", "Open MPI", "PMI", "PMIx", "Slurm", or "environment": set by hand
  comm::Rendezvous rendezvous;
  int allotted_cpus = 0;  // logical CPUs a scheduler gave to all ranks on this host; 0: nobody said
  std::string remark;     // what the user should be told, if anything
};

/// None of the variables set: alone. Throws Error(usage), showing the values, when they are half-set, not numbers, out
/// of range, or contradict each other.
Launch read_environment(const Lookup& lookup);
Launch read_environment();  // of this process

}  // namespace gputrain::launch
