#include "claim.hpp"
#include "gputrain/core/random.hpp"
#include "host_name.hpp"

namespace gputrain::launch {
namespace {

void check_pmix(const Variables& variables, const Claim& claim) {
  const auto pmix = variables.number("PMIX_RANK", 0, kMaximumRanks - 1);
  if (pmix && claim.rank && pmix->value != claim.rank->value) {
    variables.fail(claim.rank->text() + ", but " + pmix->text());
  }
}

}  // namespace

std::optional<Claim> explicit_claim(const Variables& variables) {
  Claim claim{.launcher = variables.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment",
              .rank = variables.number("RANK", 0, kMaximumRanks - 1),
              .world_size = variables.number("WORLD_SIZE", 1, kMaximumRanks),
              .local_rank = variables.number("LOCAL_RANK", 0, kMaximumRanks - 1),
              .local_world_size = variables.number("LOCAL_WORLD_SIZE", 1, kMaximumRanks)};
  // MASTER_ADDR and MASTER_PORT alone are often left over in a shell profile: they do not make this process a rank.
  if (!claim.rank && !claim.world_size && !claim.local_rank && !claim.local_world_size) return std::nullopt;
  if (const auto agents = variables.number("GROUP_WORLD_SIZE", 1, kMaximumRanks)) claim.agents = agents->value;
  return claim;
}

std::optional<Claim> open_mpi_claim(const Variables& variables) {
  Claim claim{.launcher = "Open MPI",
              .rank = variables.number("OMPI_COMM_WORLD_RANK", 0, kMaximumRanks - 1),
              .world_size = variables.number("OMPI_COMM_WORLD_SIZE", 1, kMaximumRanks),
              .local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMaximumRanks - 1),
              .local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaximumRanks),
              .how_to_set = "mpirun -x"};
  if (!claim.rank && !claim.world_size) return std::nullopt;
  check_pmix(variables, claim);
  auto job = variables.text("PMIX_NAMESPACE");
  if (!job) job = variables.text("OMPI_MCA_ess_base_jobid");
  if (job) {
    claim.job = "Open MPI job " + in_quotes(*job);
    claim.port = port_of_job(stable_hash(*job));
  }
  return claim;
}

std::optional<Claim> pmi_claim(const Variables& variables) {
  Claim claim{.launcher = "PMI",
              .rank = variables.number("PMI_RANK", 0, kMaximumRanks - 1),
              .world_size = variables.number("PMI_SIZE", 1, kMaximumRanks),
              .local_rank = variables.number({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, 0, kMaximumRanks - 1),
              .local_world_size = variables.number({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, 1, kMaximumRanks),
              .how_to_set = "mpiexec -genv"};
  if (!claim.rank && !claim.world_size) return std::nullopt;
  check_pmix(variables, claim);
  return claim;
}

std::optional<Claim> pmix_claim(const Variables& variables) {
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("PMI_RANK"))
    return std::nullopt;  // those know the size too
  Claim claim{
      .launcher = "PMIx", .rank = variables.number("PMIX_RANK", 0, kMaximumRanks - 1), .how_to_set = "prterun -x"};
  if (!claim.rank) return std::nullopt;
  return claim;
}

}  // namespace gputrain::launch
