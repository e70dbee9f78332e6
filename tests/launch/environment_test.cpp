#include "gputrain/launch/environment.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::map<std::string, std::string>;

Launch read(const Values& values) {
  return read_environment([&values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

Values two_ranks() {
  return {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
}

Values with(Values values, const std::string& name, const std::string& value) {
  values[name] = value;
  return values;
}

Values without(Values values, const std::string& name) {
  values.erase(name);
  return values;
}

std::string refusal_of(const Values& values) {
  try {
    read(values);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

TEST(LaunchEnvironment, IsAloneWithoutVariables) {
  const Launch launch = read({});
  EXPECT_EQ(launch.launcher, "alone");
  EXPECT_EQ(launch.rendezvous.world_size, 1);
  EXPECT_TRUE(launch.rendezvous.master_address.empty());
}

TEST(LaunchEnvironment, IsAloneWithOnlyAnAddress) {
  EXPECT_EQ(read({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}).launcher, "alone");
}

TEST(LaunchEnvironment, ReadsTorchrunVariables) {
  Values values = two_ranks();
  values.merge(Values{{"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RESTART_COUNT", "3"}});
  const Launch launch = read(values);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rendezvous.rank, 1);
  EXPECT_EQ(launch.rendezvous.world_size, 2);
  EXPECT_EQ(launch.rendezvous.local_rank, 1);
  EXPECT_EQ(launch.rendezvous.local_world_size, 2);
  EXPECT_EQ(launch.rendezvous.master_address, "127.0.0.1");
  EXPECT_EQ(launch.rendezvous.master_port, 29500);
  EXPECT_TRUE(launch.rendezvous.store_is_running);
  EXPECT_EQ(launch.rendezvous.attempt, "3");
}

TEST(LaunchEnvironment, SharesHostOnLoopback) {
  const auto at = read(two_ranks()).rendezvous;
  EXPECT_EQ(at.local_rank, 1);
  EXPECT_EQ(at.local_world_size, 2);
  EXPECT_FALSE(at.store_is_running);
}

TEST(LaunchEnvironment, GivesEachRankAHostUnlessTold) {
  const auto apart = read(with(two_ranks(), "MASTER_ADDR", "node0")).rendezvous;
  EXPECT_EQ(apart.local_rank, 0);
  EXPECT_EQ(apart.local_world_size, 1);
  const auto told = read(with(with(two_ranks(), "MASTER_ADDR", "node0"), "LOCAL_RANK", "1")).rendezvous;
  EXPECT_EQ(told.local_rank, 1);
  EXPECT_EQ(told.local_world_size, 2);
}

TEST(LaunchEnvironment, NamesMissingVariable) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(refusal_of(without(two_ranks(), name)), HasSubstr(std::string(name) + " is unset"));
    EXPECT_THAT(refusal_of(with(two_ranks(), name, "")), HasSubstr(name));
  }
  EXPECT_THAT(refusal_of({{"LOCAL_RANK", "0"}}), HasSubstr("RANK is unset"));
  EXPECT_THAT(refusal_of(with(two_ranks(), "LOCAL_WORLD_SIZE", "2")), HasSubstr("LOCAL_RANK is not"));
}

TEST(LaunchEnvironment, RefusesContradictionsShowingBothValues) {
  EXPECT_THAT(refusal_of(with(two_ranks(), "RANK", "2")), AllOf(HasSubstr("RANK=2"), HasSubstr("WORLD_SIZE=2")));
  Values local = with(with(two_ranks(), "LOCAL_RANK", "1"), "LOCAL_WORLD_SIZE", "1");
  EXPECT_THAT(refusal_of(local), AllOf(HasSubstr("LOCAL_RANK=1"), HasSubstr("LOCAL_WORLD_SIZE=1")));
  local = with(with(two_ranks(), "RANK", "0"), "LOCAL_RANK", "1");
  EXPECT_THAT(refusal_of(local), AllOf(HasSubstr("LOCAL_RANK=1"), HasSubstr("RANK=0")));
  EXPECT_THAT(refusal_of(with(two_ranks(), "LOCAL_WORLD_SIZE", "3")), HasSubstr("LOCAL_WORLD_SIZE"));
}

TEST(LaunchEnvironment, RefusesInvalidNumbers) {
  for (const char* value : {"one", "1x", " 1", "-1", "1.0", "99999999999999999999", "2097152"}) {
    EXPECT_THAT(refusal_of(with(two_ranks(), "RANK", value)), HasSubstr("RANK")) << value;
    EXPECT_THAT(refusal_of(with(two_ranks(), "WORLD_SIZE", value)), HasSubstr("WORLD_SIZE")) << value;
  }
  for (const char* value : {"0", "65536", "-1", "http"}) {
    EXPECT_THAT(refusal_of(with(two_ranks(), "MASTER_PORT", value)), HasSubstr("MASTER_PORT=" + std::string(value)));
  }
}

// --- Open MPI, PMI, PMIx ---------------------------------------------------------------------------------------------

Values under_mpirun(const std::string& rank = "1") {
  return {{"OMPI_COMM_WORLD_RANK", rank},      {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_RANK", rank},           {"PMIX_NAMESPACE", "591200257"}};
}

Values across_hosts(Values values) {
  values["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  values["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  return values;
}

TEST(LaunchEnvironment, MeetsOnLoopbackUnderOpenMpiOnOneHost) {
  const Launch launch = read(under_mpirun());
  EXPECT_EQ(launch.launcher, "Open MPI");
  EXPECT_EQ(launch.rendezvous.rank, 1);
  EXPECT_EQ(launch.rendezvous.world_size, 2);
  EXPECT_EQ(launch.rendezvous.local_rank, 1);
  EXPECT_EQ(launch.rendezvous.local_world_size, 2);
  EXPECT_EQ(launch.rendezvous.master_address, "127.0.0.1");
  EXPECT_EQ(launch.rendezvous.master_port, read(under_mpirun("0")).rendezvous.master_port);
  EXPECT_GE(launch.rendezvous.master_port, 20000);
  EXPECT_LT(launch.rendezvous.master_port, 30000);
  EXPECT_NE(launch.rendezvous.master_port,
            read(with(under_mpirun(), "PMIX_NAMESPACE", "591265793")).rendezvous.master_port);
}

TEST(LaunchEnvironment, AsksForAddressUnderOpenMpiAcrossHosts) {
  EXPECT_THAT(refusal_of(across_hosts(under_mpirun())), HasSubstr("mpirun -x MASTER_ADDR=HOST_OF_RANK_0"));
  const auto at = read(with(across_hosts(under_mpirun()), "MASTER_ADDR", "node0")).rendezvous;
  EXPECT_EQ(at.master_address, "node0");
  EXPECT_EQ(at.local_rank, 0);
  EXPECT_EQ(at.local_world_size, 1);
}

TEST(LaunchEnvironment, PrefersGivenAddressAndPort) {
  const auto at = read(with(with(under_mpirun(), "MASTER_ADDR", "10.0.0.1"), "MASTER_PORT", "4000")).rendezvous;
  EXPECT_EQ(at.master_address, "10.0.0.1");
  EXPECT_EQ(at.master_port, 4000);
}

TEST(LaunchEnvironment, ReadsMpichAndIntelMpi) {
  const Values values{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
  const Launch launch = read(values);
  EXPECT_EQ(launch.launcher, "PMI");
  EXPECT_EQ(launch.rendezvous.rank, 1);
  EXPECT_EQ(launch.rendezvous.world_size, 4);
  EXPECT_EQ(launch.rendezvous.local_world_size, 4);
  EXPECT_EQ(launch.rendezvous.master_address, "127.0.0.1");
  EXPECT_EQ(launch.rendezvous.master_port, 29500);
  EXPECT_THAT(refusal_of(with(values, "MPI_LOCALNRANKS", "2")), HasSubstr("mpiexec -genv MASTER_ADDR HOST_OF_RANK_0"));
  EXPECT_THAT(refusal_of(without(values, "PMI_SIZE")), HasSubstr("WORLD_SIZE is unset"));
}

TEST(LaunchEnvironment, LacksSizeUnderPmixAlone) {
  EXPECT_THAT(refusal_of({{"PMIX_RANK", "1"}}), AllOf(HasSubstr("WORLD_SIZE is unset"), HasSubstr("PMIX_RANK=1")));
}

TEST(LaunchEnvironment, RefusesHalfSetMpiVariables) {
  EXPECT_THAT(refusal_of(without(under_mpirun(), "OMPI_COMM_WORLD_SIZE")), HasSubstr("WORLD_SIZE is unset"));
  EXPECT_THAT(refusal_of(without(without(under_mpirun(), "OMPI_COMM_WORLD_RANK"), "PMIX_RANK")),
              HasSubstr("RANK is unset"));
  EXPECT_THAT(refusal_of(with(under_mpirun(), "OMPI_COMM_WORLD_RANK", "")), HasSubstr("OMPI_COMM_WORLD_RANK="));
}

// --- Slurm -----------------------------------------------------------------------------------------------------------

// Task 2 of three, on the second of two nodes.
Values under_srun() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "2"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
          {"SLURM_STEP_NODELIST", "n[1-2]"}};
}

TEST(LaunchEnvironment, MeetsOnFirstNodeAtPortOfSrunStep) {
  const Launch launch = read(under_srun());
  EXPECT_EQ(launch.launcher, "Slurm");
  EXPECT_EQ(launch.rendezvous.rank, 2);
  EXPECT_EQ(launch.rendezvous.world_size, 3);
  EXPECT_EQ(launch.rendezvous.local_rank, 0);
  EXPECT_EQ(launch.rendezvous.local_world_size, 1);
  EXPECT_EQ(launch.rendezvous.master_address, "n1");
  EXPECT_EQ(launch.rendezvous.master_port, 20000 + 12 * 16);
  EXPECT_EQ(launch.rendezvous.job, "Slurm job 12 step 0");
  EXPECT_EQ(read(with(under_srun(), "SLURM_STEP_ID", "3")).rendezvous.master_port, 20000 + 12 * 16 + 3);
  EXPECT_EQ(read(with(under_srun(), "SLURM_JOB_ID", "4294967295")).rendezvous.master_port, 20000 + 67295 * 16 % 10000);
  EXPECT_EQ(read(with(with(under_srun(), "SLURM_NODEID", "0"), "SLURM_LOCALID", "1")).rendezvous.local_world_size, 2);
}

TEST(LaunchEnvironment, MeetsOnLoopbackUnderSrunOnOneNode) {
  const auto at = read(with(with(with(under_srun(), "SLURM_NODEID", "0"), "SLURM_STEP_TASKS_PER_NODE", "3"),
                            "SLURM_STEP_NODELIST", "n1"))
                      .rendezvous;
  EXPECT_EQ(at.master_address, "127.0.0.1");
  EXPECT_EQ(at.local_world_size, 3);
}

// Values that Slurm sets in a batch script, in salloc's shell and under pam_slurm_adopt.
TEST(LaunchEnvironment, IsAloneInBatchScriptNotingUnusedTasks) {
  for (const char* step : {"", "batch", "extern", "interactive", "4294967290", "4294967291", "4294967292"}) {
    Values values = with(with(under_srun(), "SLURM_PROCID", "0"), "SLURM_STEP_ID", step);
    if (std::string(step).empty()) values = without(values, "SLURM_STEP_ID");
    const Launch launch = read(values);
    EXPECT_EQ(launch.launcher, "alone") << step;
    EXPECT_THAT(launch.remark, AllOf(HasSubstr("'3' tasks"), HasSubstr("srun gputrain run"))) << step;
  }
  EXPECT_EQ(read(without(under_srun(), "SLURM_PROCID")).launcher, "alone");
  EXPECT_EQ(read({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "1"}}).remark, "");
  EXPECT_EQ(read({}).remark, "");
}

TEST(LaunchEnvironment, RefusesHalfSetSlurmVariables) {
  for (const char* name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"}) {
    EXPECT_THAT(refusal_of(without(under_srun(), name)), HasSubstr(std::string(name) + " is unset"));
  }
  EXPECT_THAT(refusal_of(without(without(under_srun(), "SLURM_NTASKS"), "SLURM_STEP_NUM_TASKS")),
              HasSubstr("SLURM_NTASKS is unset"));
  EXPECT_THAT(refusal_of(without(under_srun(), "SLURM_STEP_NODELIST")), HasSubstr("SLURM_JOB_NODELIST is unset"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_TASKS_PER_NODE", "2")),
              AllOf(HasSubstr("adds up to 2"), HasSubstr("SLURM_STEP_NUM_TASKS=3")));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_NODEID", "2")), HasSubstr("SLURM_NODEID=2"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_NODELIST", "n[1-3]")), HasSubstr("names 3 nodes"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_NODELIST", "n[1-999999999]")),
              HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_NODELIST", "-oProxyCommand=id,n2")), HasSubstr("no host name"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_TASKS_PER_NODE", "1(x999999999)")), HasSubstr("more than"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_STEP_ID", "0x")), HasSubstr("SLURM_STEP_ID=0x"));
  EXPECT_THAT(refusal_of(with(under_srun(), "SLURM_PROCID", "3")), HasSubstr("SLURM_PROCID=3"));
}

TEST(LaunchEnvironment, AsksForAddressOfPlacedSrunTasks) {
  const Values placed = with(under_srun(), "SLURM_DISTRIBUTION", "arbitrary");
  EXPECT_THAT(refusal_of(placed), HasSubstr("export MASTER_ADDR=HOST_OF_RANK_0"));
  EXPECT_EQ(read(with(placed, "MASTER_ADDR", "n2")).rendezvous.master_address, "n2");
}

TEST(LaunchEnvironment, ReadsCpusOfAllRanksFromSlurm) {
  EXPECT_EQ(read(with(under_srun(), "SLURM_CPUS_ON_NODE", "16")).allotted_cpus, 16);
  EXPECT_EQ(read({{"SLURM_CPUS_ON_NODE", "16"}}).allotted_cpus, 16);
  EXPECT_EQ(read(under_srun()).allotted_cpus, 0);
  EXPECT_THAT(refusal_of({{"SLURM_CPUS_ON_NODE", "many"}}), HasSubstr("SLURM_CPUS_ON_NODE=many"));
}

// --- several launchers at once ---------------------------------------------------------------------------------------

Values operator+(Values a, const Values& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

TEST(LaunchEnvironment, RefusesContradictoryLaunchersShowingBoth) {
  EXPECT_THAT(refusal_of(with(two_ranks(), "RANK", "0") + under_mpirun("1")),
              AllOf(HasSubstr("RANK=0"), HasSubstr("OMPI_COMM_WORLD_RANK=1"), HasSubstr("unset")));
  EXPECT_THAT(refusal_of(with(two_ranks(), "WORLD_SIZE", "4") + under_mpirun("1")),
              AllOf(HasSubstr("WORLD_SIZE=4"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
  EXPECT_THAT(refusal_of(two_ranks() + under_srun()), AllOf(HasSubstr("RANK=1"), HasSubstr("SLURM_PROCID=2")));
  EXPECT_THAT(refusal_of(with(under_mpirun(), "PMIX_RANK", "0")),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=1"), HasSubstr("PMIX_RANK=0")));
  EXPECT_THAT(refusal_of(under_mpirun() + Values{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMIX_RANK", "0"}}),
              HasSubstr("PMIX_RANK=0"));
  Values torchrun = two_ranks() + Values{{"TORCHELASTIC_RUN_ID", "none"}, {"GROUP_WORLD_SIZE", "1"}};
  EXPECT_THAT(refusal_of(torchrun + under_mpirun("0")),
              HasSubstr("contradict"));  // mpirun -np 2 torchrun: the same job twice
}

TEST(LaunchEnvironment, CompletesHandSetRankFromSlurm) {
  const auto at = read(under_srun() + Values{{"RANK", "2"}, {"WORLD_SIZE", "3"}}).rendezvous;
  EXPECT_EQ(at.rank, 2);
  EXPECT_EQ(at.master_address, "n1");
  EXPECT_EQ(read(with(under_srun(), "WORLD_SIZE", "3")).launcher, "Slurm");
  EXPECT_THAT(refusal_of(with(under_srun(), "WORLD_SIZE", "2")), HasSubstr("WORLD_SIZE=2"));
}

TEST(LaunchEnvironment, CountsSrunWithPmiAsOneLauncher) {
  const Launch launch = read(under_srun() + Values{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_JOBID", "12.0"}});
  EXPECT_EQ(launch.rendezvous.master_address, "n1");
  EXPECT_EQ(launch.rendezvous.local_rank, 0);
  EXPECT_EQ(launch.rendezvous.master_port, 20000 + 12 * 16);
  EXPECT_EQ(read(with(under_srun(), "PMIX_RANK", "2")).rendezvous.world_size, 3);
}

TEST(LaunchEnvironment, CountsTorchrunUnderSrunAsTorchrun) {
  const Values torchrun{{"RANK", "3"},
                        {"WORLD_SIZE", "6"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"GROUP_WORLD_SIZE", "3"},
                        {"TORCHELASTIC_RUN_ID", "12"},
                        {"MASTER_ADDR", "n1"},
                        {"MASTER_PORT", "29500"}};
  const Launch launch = read(under_srun() + torchrun);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rendezvous.rank, 3);
  EXPECT_EQ(launch.rendezvous.world_size, 6);
}

// mpirun uses srun to start one agent per node; its ranks inherit the agent's variables.
TEST(LaunchEnvironment, CountsMpirunInSlurmJobAsMpirun) {
  const Launch launch = read(under_srun() + under_mpirun("0"));
  EXPECT_EQ(launch.launcher, "Open MPI");
  EXPECT_EQ(launch.rendezvous.rank, 0);
  EXPECT_EQ(launch.rendezvous.world_size, 2);
  const Values one_task =
      with(with(under_srun(), "SLURM_PROCID", "0") + Values{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NODEID", "0"}},
           "SLURM_STEP_TASKS_PER_NODE", "1");
  EXPECT_EQ(read(one_task + two_ranks()).rendezvous.rank, 1);
}

TEST(LaunchEnvironment, RefusesInvalidMasterAddressSafely) {
  for (const char* name : {"-oProxyCommand=touch /tmp/x", "node 0", "$(id)", "`id`", "node0;id", "a\nb", "\x1b[2J",
                           "node0/x", "..", "http://node0", "[node0]", "node0:29500", "[::1]:29500"}) {
    const std::string refusal = refusal_of(with(two_ranks(), "MASTER_ADDR", name));
    EXPECT_THAT(refusal, AllOf(HasSubstr("MASTER_ADDR='"), HasSubstr("no host name"))) << name;
    for (const char c : refusal) EXPECT_TRUE((c >= ' ' && c <= '~') || c == '\n') << name;
  }
  for (const char* name : {"node0", "gpu-01.cluster.local", "10.0.0.1", "::1", "fe80::1%eth0", "a_b"}) {
    EXPECT_EQ(read(with(two_ranks(), "MASTER_ADDR", name)).rendezvous.master_address, name);
  }
  EXPECT_EQ(read(with(two_ranks(), "MASTER_ADDR", "[::1]")).rendezvous.master_address, "::1");
}

TEST(LaunchEnvironment, LetsOneRankTrainWithoutAddress) {
  for (const Values& values : {Values{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}},
                               Values{{"WORLD_SIZE", "1"}}, Values{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
                               Values{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "http://x"}},
                               Values{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}}) {
    const auto at = read(values).rendezvous;
    EXPECT_EQ(at.world_size, 1);
    EXPECT_EQ(at.rank, 0);
    EXPECT_EQ(at.local_world_size, 1);
  }
  EXPECT_THAT(refusal_of({{"RANK", "1"}, {"WORLD_SIZE", "1"}}), HasSubstr("RANK=1 is not below WORLD_SIZE=1"));
  EXPECT_THAT(refusal_of({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is unset"));
}

}  // namespace
}  // namespace gputrain::launch
