#include "launcher_env.hpp"
#include "gputrain/core/random.hpp"
#include "host_name.hpp"

namespace gputrain::launch {
namespace {

void check_pmix(const Variables& variables, const LauncherEnv& env) {
  const auto pmix = variables.number("PMIX_RANK", 0, kMaximumRanks - 1);
  if (pmix && env.rank && pmix->value != env.rank->value) {
    variables.fail(env.rank->text() + ", but " + pmix->text());
  }
}

}  // namespace

std::optional<LauncherEnv> explicit_env(const Variables& variables) {
  LauncherEnv env{.launcher = variables.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment",
                  .rank = variables.number("RANK", 0, kMaximumRanks - 1),
                  .world_size = variables.number("WORLD_SIZE", 1, kMaximumRanks),
                  .local_rank = variables.number("LOCAL_RANK", 0, kMaximumRanks - 1),
                  .local_world_size = variables.number("LOCAL_WORLD_SIZE", 1, kMaximumRanks)};
  // MASTER_ADDR and MASTER_PORT alone are often left over in a shell profile: they do not make this process a rank.
  if (!env.rank && !env.world_size && !env.local_rank && !env.local_world_size) return std::nullopt;
  if (const auto agents = variables.number("GROUP_WORLD_SIZE", 1, kMaximumRanks)) env.agents = agents->value;
  return env;
}

std::optional<LauncherEnv> open_mpi_env(const Variables& variables) {
  LauncherEnv env{.launcher = "Open MPI",
                  .rank = variables.number("OMPI_COMM_WORLD_RANK", 0, kMaximumRanks - 1),
                  .world_size = variables.number("OMPI_COMM_WORLD_SIZE", 1, kMaximumRanks),
                  .local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMaximumRanks - 1),
                  .local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaximumRanks),
                  .how_to_set = "mpirun -x"};
  if (!env.rank && !env.world_size) return std::nullopt;
  check_pmix(variables, env);
  auto job = variables.text("PMIX_NAMESPACE");
  if (!job) job = variables.text("OMPI_MCA_ess_base_jobid");
  if (job) {
    env.job = "Open MPI job " + in_quotes(*job);
    env.port = port_of_job(stable_hash(*job));
  }
  return env;
}

std::optional<LauncherEnv> pmi_env(const Variables& variables) {
  LauncherEnv env{.launcher = "PMI",
                  .rank = variables.number("PMI_RANK", 0, kMaximumRanks - 1),
                  .world_size = variables.number("PMI_SIZE", 1, kMaximumRanks),
                  .local_rank = variables.number({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, 0, kMaximumRanks - 1),
                  .local_world_size = variables.number({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, 1, kMaximumRanks),
                  .how_to_set = "mpiexec -genv"};
  if (!env.rank && !env.world_size) return std::nullopt;
  check_pmix(variables, env);
  return env;
}

std::optional<LauncherEnv> pmix_env(const Variables& variables) {
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("PMI_RANK"))
    return std::nullopt;  // their variables tell the size too
  LauncherEnv env{
      .launcher = "PMIx", .rank = variables.number("PMIX_RANK", 0, kMaximumRanks - 1), .how_to_set = "prterun -x"};
  if (!env.rank) return std::nullopt;
  return env;
}

}  // namespace gputrain::launch
