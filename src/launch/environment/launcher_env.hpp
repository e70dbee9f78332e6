// The facts about this process that one launcher gives in its variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "variables.hpp"

namespace gputrain::launch {

struct LauncherEnv {
  std::string launcher;
  std::optional<Number> rank, world_size, local_rank, local_world_size;
  std::string first_host;        // host of rank 0; empty: unknown
  std::optional<uint16_t> port;  // rendezvous port, the same for all ranks of a job, different between jobs
  std::string job;               // "Slurm job 12 step 0"; empty: unknown
  std::string how_to_set;        // how to set a variable for all ranks: "mpirun -x"
  std::optional<int> agents;     // number of agents, if the launcher starts one per host
  bool starts_agents = false;    // srun: mpirun starts its agents with it, and ranks inherit their variables
};

/// Ports for jobs whose launcher names none are in [20000, 30000): below the ephemeral ports, above most services.
constexpr uint16_t port_of_job(uint64_t number) { return static_cast<uint16_t>(20000 + number % 10000); }

/// Return empty if their launcher did not start this process. They throw Error(usage) for invalid values.
std::optional<LauncherEnv> explicit_env(const Variables& variables);  // RANK, WORLD_SIZE, ...: torchrun, or by hand
std::optional<LauncherEnv> open_mpi_env(const Variables& variables);
std::optional<LauncherEnv> pmi_env(const Variables& variables);   // MPICH, Intel MPI, Cray
std::optional<LauncherEnv> pmix_env(const Variables& variables);  // PRRTE; other launchers set it too
std::optional<LauncherEnv> slurm_env(const Variables& variables);

/// Returns a remark for a process in a Slurm job that srun did not start; empty otherwise.
std::string remark_on_slurm(const Variables& variables);

}  // namespace gputrain::launch
