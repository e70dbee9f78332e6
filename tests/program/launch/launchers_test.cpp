// Starts the same job with every real launcher (mpirun, mpiexec, srun, sbatch, torchrun) and compares it with ranks
// that the test starts itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "support/needs.hpp"
#include "support/ports.hpp"
#include "support/program.hpp"
#include "support/slurm_cluster.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using gputrain::testing::path_of;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

const std::string kSource = GPUTRAIN_SOURCE_DIR;
const std::string kTorchrunProgram = kSource + "/.deps/bin/torchrun";

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ForeignLauncher : public ::testing::Test {
 protected:
  void need(const Words& programs) {
    if (const std::string program = gputrain::testing::missing_program(programs); !program.empty()) missing_ = program;
  }

  Words run(const std::string& output) const {
    return {gputrain_path(), "run", job_, "--output-dir", folder_ / output};
  }

  /// By default, all Open MPI runs share a folder in /tmp, and a run that ends may delete it while another starts.
  Environment with_own_folder(Environment environment, const std::string& name = "mpi_session") const {
    std::filesystem::create_directories(folder_ / name);
    environment.emplace("OMPI_MCA_orte_tmpdir_base", folder_ / name);
    return environment;
  }

  Result start(Words command, Environment environment = {{"OMP_NUM_THREADS", "1"}}) {
    command[0] = path_of(command[0]);
    return Program(command, with_own_folder(std::move(environment))).wait(100);
  }

  /// The curve of ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the same for all tests.
  std::string by_hand(int ranks) {
    static std::map<int, std::string> curves;
    if (!curves.contains(ranks)) curves[ranks] = by_hand(ranks, {});
    return curves[ranks];
  }

  /// The same in this test's folder. `of_first` is set for rank 0 only.
  std::string by_hand(int ranks, const Environment& of_first) {
    const std::string output = "by_hand_" + std::to_string(ranks) + (of_first.empty() ? "" : "_changed");
    const std::string port = std::to_string(gputrain::testing::free_port());
    std::vector<std::unique_ptr<Program>> programs;
    for (int rank = 0; rank < ranks; ++rank) {
      Environment environment{{"RANK", std::to_string(rank)},
                              {"WORLD_SIZE", std::to_string(ranks)},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", port},
                              {"OMP_NUM_THREADS", "1"}};
      if (rank == 0) environment.insert(of_first.begin(), of_first.end());
      programs.push_back(std::make_unique<Program>(run(output), environment));
    }
    for (auto& program : programs) {
      const Result result = program->wait();
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    return timeless_metrics(folder_ / (output + "/metrics.jsonl"));
  }

  void expect_same(const Result& result, const std::string& output, int ranks, const std::string& start_page) {
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, ContainsRegex("hosts .*" + start_page));
    const std::string metrics = timeless_metrics(folder_ / (output + "/metrics.jsonl"));
    EXPECT_THAT(metrics, HasSubstr("\"step\":20"));
    EXPECT_EQ(metrics, by_hand(ranks));
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_, "log: {interval: 1}\n");
  std::string missing_;
};

// configs/launch/README.md shows these commands.

TEST_F(ForeignLauncher, TrainsUnderOpenMpi) {
  need({"mpirun.openmpi"});
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result =
      start(Words{"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "2"} + run("mpi"));
  expect_same(result, "mpi", 2, "1 host, 2 ranks .* by Open MPI, met at 127.0.0.1:2[0-9]*");
}

TEST_F(ForeignLauncher, TrainsUnderMpich) {
  need({"mpiexec.hydra"});
  GPUTRAIN_SKIP_FOR(missing_);
  const std::string port = std::to_string(gputrain::testing::free_port());
  const Result result = start(Words{"mpiexec.hydra", "-genv", "MASTER_PORT", port, "-n", "2"} + run("mpich"));
  expect_same(result, "mpich", 2, "1 host, 2 ranks .* by PMI, met at 127.0.0.1:" + port);
}

TEST_F(ForeignLauncher, TrainsUnderTorchrun) {
  need({kTorchrunProgram});
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = start(
      Words{kTorchrunProgram, "--no-python", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"} +
      run("torchrun"));
  expect_same(result, "torchrun", 2, "1 host, 2 ranks .* by torchrun, met at ");
}

/// The tests share a cluster, which numbers their jobs from 1. Their ranks meet at a port of that number.
class SlurmLauncher : public ForeignLauncher {
 protected:
  static void TearDownTestSuite() { cluster.reset(); }
  void SetUp() override {
    missing_ = SlurmCluster::missing();
    need({"unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd", "srun", "sbatch"});
  }

  Result in_slurm(const Words& command, const Environment& environment = {{"OMP_NUM_THREADS", "1"}}) {
    if (!cluster) cluster.emplace();
    ++jobs;
    return start(cluster->entering() + command, environment);
  }
  static std::string port() { return std::to_string(20000 + 16 * jobs); }

  static inline std::optional<SlurmCluster> cluster;
  static inline int jobs = 0;
};

TEST_F(SlurmLauncher, TrainsUnderSrunOnOneNode) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = in_slurm(Words{"srun", "-N1", "-n2"} + run("slurm"));
  expect_same(result, "slurm", 2, "1 host, 2 ranks .* by Slurm, met at 127.0.0.1:" + port());
}

TEST_F(SlurmLauncher, TrainsUnderSrunOnTwoNodes) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = in_slurm(Words{"srun", "-N2", "--ntasks-per-node=2"} + run("slurm"));
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .* by Slurm, met at n1:" + port());
}

TEST_F(SlurmLauncher, TrainsUnderTorchrunInSrun) {
  need({kTorchrunProgram});
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result =
      in_slurm(Words{"srun", "-N2", "--ntasks-per-node=1", kTorchrunProgram, "--no-python", "--nnodes=2",
                     "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n1:29400"} +
               run("slurm"));
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .* by torchrun, met at n1:");
}

TEST_F(SlurmLauncher, TrainsUnderMpirunInBatchScript) {
  need({"mpirun.openmpi"});
  GPUTRAIN_SKIP_FOR(missing_);
  std::string line = "mpirun.openmpi --allow-run-as-root -x MASTER_ADDR=n1 -np 4";
  for (const auto& word : run("slurm")) line += " '" + word + "'";
  const std::string script =
      folder_.write("batch.sh", "#!/bin/sh\nexport GPUTRAIN_METADATA_URL=aws=http://127.0.0.1:9\n" + line + "\n");
  const std::string log = folder_ / "batch.log";
  Result result = in_slurm({"sbatch", "--wait", "--nodes=2", "--ntasks-per-node=2", "--output=" + log, script});
  result.out = read_file(log);
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .* by Open MPI, met at n1:2[0-9]*");
}

TEST_F(SlurmLauncher, TrainsUnderOneLauncherPerNode) {
  GPUTRAIN_SKIP_FOR(missing_);
  Words command{"srun", "-N2", "--ntasks-per-node=1", gputrain_path(), "launch", "--nproc-per-node", "2"};
  const Words ranks = run("slurm");
  command.insert(command.end(), ranks.begin() + 1, ranks.end());
  const Result result = in_slurm(command);
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .*, met at 10.77.0.1:");
  EXPECT_THAT(result.out, HasSubstr("node 1 of 2 by Slurm, node 0 at n1 port " + port()));
}

TEST_F(SlurmLauncher, RefusesSeveralLaunchersPerNode) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result =
      in_slurm(Words{"srun", "-n2", "-N1", gputrain_path(), "launch", "run", job_, "--output-dir", folder_ / "never"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("srun --ntasks-per-node=1 gputrain launch"));
}

TEST_F(SlurmLauncher, LaunchesFromBatchScript) {
  need({"/usr/sbin/sshd", "ssh-keygen"});
  GPUTRAIN_SKIP_FOR(missing_);
  std::string line = kSource + "/tests/program/clusters/second_sshd.sh " + (folder_ / "ssh");
  for (const auto& word : run("slurm")) {
    line += " '" + word + "'";
    if (word == gputrain_path()) line += " launch --nproc-per-node 2";
  }
  const std::string script =
      folder_.write("batch.sh", "#!/bin/sh\nexport GPUTRAIN_METADATA_URL=aws=http://127.0.0.1:9\n" + line + "\n");
  const std::string log = folder_ / "batch.log";
  Result result = in_slurm({"sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", "--output=" + log, script});
  result.out = read_file(log);
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .*, met at 10.77.0.");
  EXPECT_THAT(result.out, HasSubstr("4 ranks on n1:2, n2:2"));
}

/// Scripts of `gputrain export --format slurm`.
class SlurmScript : public SlurmLauncher {
 protected:
  /// Gives it to sbatch with two nodes of two ranks. Returns what sbatch says.
  Result submit(const std::string& output, const Words& settings, const Words& options) {
    Words command{"export", job_, script_, "--format", "slurm"};
    for (const std::string& setting :
         Words{"device=cpu", "launch.nnodes=2", "launch.nproc_per_node=2", "output_dir=" + (folder_ / output)} +
             settings)
      command.insert(command.end(), {"--set", setting});
    const Result exported = gputrain(command);
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
    const std::string programs = std::filesystem::path(gputrain_path()).parent_path();
    return in_slurm(Words{"sbatch"} + options + Words{"--output=" + log_, script_},
                    {{"OMP_NUM_THREADS", "1"},
                     {"PATH", programs + ":" + std::getenv("PATH")},
                     {"GPUTRAIN_METADATA_URL", "aws=http://127.0.0.1:9"}});
  }

  bool logs(const std::string& pattern) {
    for (int i = 0; i < 1200; ++i) {
      if (std::filesystem::exists(log_) && ::testing::Value(read_file(log_), ContainsRegex(pattern))) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  std::string script_ = folder_ / "script.sh", log_ = folder_ / "script.log";
};

TEST_F(SlurmScript, TrainsOnTwoNodes) {
  GPUTRAIN_SKIP_FOR(missing_);
  Result result = submit("slurm", {}, {"--wait"});
  result.out = read_file(log_);
  expect_same(result, "slurm", 4, "2 hosts, 4 ranks .*, met at 10.77.0.1:");
}

TEST_F(SlurmScript, GoesOnAfterSignalBeforeItsEnd) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result sent =
      submit("slurm", {"train.max_steps=1500", "eval.interval=null", "log.interval=50"}, {"--parsable"});
  ASSERT_EQ(sent.exit_code, 0) << sent.err;
  const std::string job = sent.out.substr(0, sent.out.find('\n'));
  ASSERT_TRUE(logs("step *50/")) << read_file(log_);
  start(cluster->entering() + Words{"scancel", "--batch", "--signal=USR1", job});
  ASSERT_TRUE(logs("asked to make way .*exit 138")) << read_file(log_);
  EXPECT_TRUE(logs("attempt 2(.|\n)*exit 0")) << read_file(log_);
}

TEST_F(SlurmLauncher, TrainsAloneWithoutSrunAndSaysSo) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = in_slurm(Words{"salloc", "-n3"} + run("alone"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("has '3' tasks"), HasSubstr("srun gputrain run")));
}

// --- conflicts between launchers -------------------------------------------------------------------------------------

TEST_F(ForeignLauncher, KeepsTwoJobsOnOneHostApart) {
  need({"mpirun.openmpi"});
  GPUTRAIN_SKIP_FOR(missing_);
  std::vector<std::unique_ptr<Program>> jobs;
  for (const char* output : {"first", "second"}) {
    jobs.push_back(std::make_unique<Program>(
        Words{path_of("mpirun.openmpi"), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-np", "2"} +
            run(output),
        with_own_folder({{"OMP_NUM_THREADS", "1"}}, "session_of_" + std::string(output))));
  }
  const Result first = jobs[0]->wait(), second = jobs[1]->wait();
  expect_same(first, "first", 2, "by Open MPI");
  expect_same(second, "second", 2, "by Open MPI");
}

TEST_F(ForeignLauncher, NamesFirstJobToItsDuplicate) {
  Environment two{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"OMP_NUM_THREADS", "1"}};
  const int port = gputrain::testing::free_port();
  two["MASTER_PORT"] = std::to_string(port);
  two.insert(kFromDisk.begin(), kFromDisk.end());
  Program waits(run("one"), two);
  ASSERT_TRUE(gputrain::testing::becomes_open(port));
  const Result second = start(run("two"), two);
  EXPECT_EQ(second.exit_code, 6);
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("it is used by process"), HasSubstr("gputrain run"), HasSubstr("MASTER_PORT")));
}

TEST_F(ForeignLauncher, RefusesContradictoryVariables) {
  const Result result = start(run("never"), {{"RANK", "0"},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", "29500"},
                                             {"OMPI_COMM_WORLD_RANK", "1"},
                                             {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("RANK=0"), HasSubstr("OMPI_COMM_WORLD_RANK=1")));
}

/// The library that `faketime` preloads to shift a program's clock.
std::string fake_clock() {
  const std::string print = "LD_PRELOAD= ; faketime -f +0 sh -c 'echo $LD_PRELOAD'";
  const Result result = Program({"/bin/sh", "-c", print}).wait();
  return result.out.substr(0, result.out.find_first_of(": \n"));
}

TEST_F(ForeignLauncher, TrainsWithClocksAnHourApart) {
  need({"faketime"});
  GPUTRAIN_SKIP_FOR(missing_);
  // Shifts the wall clock of rank 0; its monotonic clock stays correct, as on real machines.
  const Environment an_hour_early{
      {"LD_PRELOAD", fake_clock()}, {"FAKETIME", "-1h"}, {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}};
  const std::string changed = by_hand(2, an_hour_early);
  EXPECT_EQ(changed, by_hand(2, {}));
  const std::string time_key = "\"time\":";
  const auto time_of = [&](const std::string& output) {
    const std::string text = read_file(folder_ / (output + "/metrics.jsonl"));
    return std::strtod(text.c_str() + text.find(time_key) + time_key.size(), nullptr);
  };
  EXPECT_NEAR(time_of("by_hand_2") - time_of("by_hand_2_changed"), 3600, 100);
}

// --- cores per rank --------------------------------------------------------------------------------------------------

const Environment kOwnChoice{{"OMP_NUM_THREADS", ""}};  // even if the tests themselves run with one thread

TEST_F(ForeignLauncher, RespectsBindingToCores) {
  need({"mpirun.openmpi"});
  if (std::thread::hardware_concurrency() < 2) missing_ = "two cores are needed";
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result =
      start(Words{"mpirun.openmpi", "--allow-run-as-root", "--bind-to", "core", "--use-hwthread-cpus", "-np", "2"} +
                run("bound"),
            kOwnChoice);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 thread (bound by the launcher)"));
}

TEST_F(ForeignLauncher, DividesCoresOfUnboundRanks) {
  need({"mpirun.openmpi"});
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = start(
      Words{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"} + run("free"),
      kOwnChoice);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cores for 2 ranks)"));
}

TEST_F(SlurmLauncher, UsesCpusOfTheJobNotTheNode) {
  GPUTRAIN_SKIP_FOR(missing_);
  const Result result = in_slurm(Words{"srun", "-n1"} + run("one"), kOwnChoice);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 thread (allotted by the scheduler)"));
}

}  // namespace
}  // namespace gputrain::testing_support
