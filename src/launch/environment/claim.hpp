// What one launcher says about this process, in the variables it gives to those it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "variables.hpp"

namespace gputrain::launch {

struct Claim {
  std::string launcher;
  std::optional<Number> rank, world_size, local_rank, local_world_size;
  std::string first_host;        // where rank 0 is; empty: not said
  std::optional<uint16_t> port;  // to meet at, the same for all ranks of a job and different between jobs
  std::string job;               // "Slurm job 12 step 0"; empty: not said
  std::string how_to_set;        // how a variable is given to all ranks: "mpirun -x"
  std::optional<int> agents;     // of a launcher that starts an agent per host, which starts the ranks there: how many
  bool starts_agents = false;    // srun: mpirun has it start one agent per host, whose variables its ranks inherit
};

/// Ports for jobs whose launcher names none lie in [20000, 30000): below those that systems hand out by themselves, and
/// above most services.
constexpr uint16_t port_of_job(uint64_t number) { return static_cast<uint16_t>(20000 + number % 10000); }

/// Each is empty where its launcher did not start this process. Throw Error(usage) for values that make no sense.
std::optional<Claim> explicit_claim(const Variables& variables);  // RANK, WORLD_SIZE, ...: torchrun, or by hand
std::optional<Claim> open_mpi_claim(const Variables& variables);
std::optional<Claim> pmi_claim(const Variables& variables);   // MPICH, Intel MPI, Cray
std::optional<Claim> pmix_claim(const Variables& variables);  // PRRTE, and beside other launchers' variables
std::optional<Claim> slurm_claim(const Variables& variables);

/// What a process should be told that is in a Slurm job, but was not started by srun; empty otherwise.
std::string remark_on_slurm(const Variables& variables);

}  // namespace gputrain::launch
