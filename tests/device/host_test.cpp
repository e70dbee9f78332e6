#include "gputrain/device/host.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "gputrain/device/control_groups.hpp"
#include "gputrain/device/host_load.hpp"

namespace gputrain::device {
namespace {

class CpuThreadsPlan : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("OMP_NUM_THREADS"); }
  void TearDown() override { ::unsetenv("OMP_NUM_THREADS"); }
};

TEST_F(CpuThreadsPlan, GivesLoneRankEveryCore) {
  EXPECT_EQ(plan_cpu_threads(1).count, available_cores());
  EXPECT_GE(available_cores(), 1);
}

TEST_F(CpuThreadsPlan, SharesCoresBetweenRanks) {
  EXPECT_EQ(plan_cpu_threads(2).count, std::max(1, available_cores() / 2));
  EXPECT_EQ(plan_cpu_threads(1000).count, 1);
  EXPECT_NE(plan_cpu_threads(2).reason.find("2 ranks"), std::string::npos);
}

TEST_F(CpuThreadsPlan, FollowsTheUsersVariable) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(plan_cpu_threads(8).count, 3);
  EXPECT_EQ(plan_cpu_threads(8).reason, "OMP_NUM_THREADS");
  ::setenv("OMP_NUM_THREADS", "many", 1);
  EXPECT_EQ(plan_cpu_threads(1).count, available_cores());
}

TEST_F(CpuThreadsPlan, KeepsCoresBoundByTheLauncher) {
  if (available_cores() < 2) GTEST_SKIP() << "one core only";
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const CpuThreads plan = plan_cpu_threads(2);
  ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(plan.count, 1);
  EXPECT_EQ(plan.reason, "bound by the launcher");
}

TEST(AvailableHostBytes, IsLeastOfMachineAndControlGroups) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "available_host_bytes";
  const auto write = [&](const std::string& name, const std::string& text) {
    create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const auto available = [&] { return available_host_bytes(root / "proc", root / "cgroup"); };
  write("proc/meminfo", "MemTotal:       8000 kB\nMemAvailable:   4000 kB\n");
  EXPECT_EQ(available(), 4000 * 1024);
  write("proc/self/cgroup", "1:name=systemd:/\n0::/job/step\n");
  write("cgroup/job/step/memory.max", "max\n");
  write("cgroup/job/step/memory.current", "900000\n");
  write("cgroup/job/memory.max", "1000000\n");
  write("cgroup/job/memory.current", "950000\n");
  write("cgroup/job/memory.stat", "anon 700000\ninactive_file 200000\n");
  EXPECT_EQ(available(), 1000000 - 950000 + 200000);
  write("cgroup/memory.max", "500000\n");
  write("cgroup/memory.current", "600000\n");
  EXPECT_EQ(available(), 0);
  std::filesystem::remove_all(root);
}

TEST(HostLoad, IsWhatProcessorsDidSinceTheLastLook) {
  const std::filesystem::path proc = std::filesystem::path(::testing::TempDir()) / "host_load";
  std::filesystem::create_directories(proc);
  const auto write = [&](const std::string& ticks) {
    std::ofstream(proc / "stat") << "cpu  " << ticks << "\ncpu0 9 9\n";
  };
  write("100 0 50 800 50 0 0 0 70 0");
  HostLoad load(proc);
  write("130 0 60 840 70 0 0 0 99 0");  // 40 of 100 ticks; the guest's 29 are also in the first column
  EXPECT_NEAR(load.cpu_ratio(), 0.4, 1e-12);
  EXPECT_TRUE(std::isnan(load.cpu_ratio())) << "no time has passed";
  std::filesystem::remove_all(proc);
  EXPECT_TRUE(std::isnan(load.cpu_ratio()));
  EXPECT_GT(HostLoad::memory_used_bytes(), 0);
}

/// Files of a machine's control groups.
class ControlGroups : public ::testing::Test {
 protected:
  ~ControlGroups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  GroupLimits limits() const { return group_limits(root_ / "proc", root_ / "cgroup"); }

  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("control_groups_" + std::to_string(::getpid()));
};

TEST_F(ControlGroups, OfVersion2LimitAtEachLevel) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("cgroup/cpu.max", "max 100000\n");
  write("cgroup/job/cpu.max", "150000 100000\n");
  write("cgroup/job/step/cpu.max", "800000 100000\n");
  write("cgroup/job/step/memory.max", "700000\n");
  write("cgroup/job/memory.max", "900000\n");
  write("cgroup/job/memory.current", "850000\n");
  EXPECT_EQ(limits().cores, 1.5);
  EXPECT_EQ(limits().memory_bytes, 700000);
  EXPECT_EQ(limits().room_bytes, 50000);
}

TEST_F(ControlGroups, OfVersion1LimitAtEachLevel) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/slurm/job_7\n3:memory:/slurm/job_7/step_0\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/slurm/job_7/memory.limit_in_bytes", "600000\n");
  write("cgroup/memory/slurm/job_7/memory.usage_in_bytes", "500000\n");
  write("cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "250000\n");
  write("cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cores, 2.5);
  EXPECT_EQ(limits().memory_bytes, 600000);
  EXPECT_EQ(limits().room_bytes, 100000);
}

TEST_F(ControlGroups, OfAContainerAreAtItsRoot) {
  write("proc/self/cgroup", "0::/../../docker/a\n");
  write("cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(limits().cores, 0.5);
  write("proc/self/cgroup", "0::/is/not/here\nnonsense\n");
  EXPECT_EQ(limits().cores, 0.5);
  EXPECT_EQ(limits().memory_bytes, INT64_MAX);
}

TEST(RanksOnSameCores, CountsAllUnlessBound) {
  EXPECT_EQ(ranks_on_same_cores(64, 64, 8), 8);  // not bound
  EXPECT_EQ(ranks_on_same_cores(8, 64, 8), 1);   // mpirun --map-by slot:PE=8, srun --cpu-bind=cores -c 8
  EXPECT_EQ(ranks_on_same_cores(1, 64, 2), 1);   // mpirun --bind-to core
  EXPECT_EQ(ranks_on_same_cores(32, 64, 8), 4);  // mpirun --bind-to socket
  EXPECT_EQ(ranks_on_same_cores(32, 64, 2), 1);
  EXPECT_EQ(ranks_on_same_cores(1, 2, 4), 2);  // more ranks than cores
  EXPECT_EQ(ranks_on_same_cores(64, 64, 1), 1);
}

TEST_F(CpuThreadsPlan, SharesWhatTheSchedulerAllots) {
  const int cores = available_cores();
  EXPECT_EQ(plan_cpu_threads(1, 1).count, 1);
  EXPECT_EQ(plan_cpu_threads(1, 1).reason, cores > 1 ? "allotted by the scheduler" : "all cores");
  EXPECT_EQ(plan_cpu_threads(2, 1000 * 1000).reason, "bound by the launcher");  // far fewer cores than the host
  EXPECT_EQ(plan_cpu_threads(2, 1000 * 1000).count, cores);
}

TEST_F(CpuThreadsPlan, SetsThreadsOfAten) {
  const int before = at::get_num_threads();
  set_cpu_threads({.count = 1, .reason = "test"});
  EXPECT_EQ(at::get_num_threads(), 1);
  set_cpu_threads({.count = before, .reason = "test"});
}

TEST(HostMemory, KeepsPeakAfterMemoryIsFreed) {
  const int64_t before = peak_resident_bytes(), more = before + (int64_t{64} << 20);
  {
    std::vector<char> memory(static_cast<size_t>(more));
    std::memset(memory.data(), 1, memory.size());
  }
  EXPECT_GE(peak_resident_bytes(), more);
  EXPECT_LT(peak_resident_bytes(), host_memory_bytes());
}

// The test starts itself again in a process that used much memory before.
TEST(HostMemory, ExcludesPeakOfStartingProgram) {
  constexpr size_t kBytes = size_t{1} << 30;
  if (::getenv("AFTER_EXEC") != nullptr) {
    EXPECT_LT(peak_resident_bytes(), int64_t{kBytes});
    return;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(std::malloc(kBytes), 1, kBytes);
    ::setenv("AFTER_EXEC", "1", 1);
    ::execl("/proc/self/exe", "test", "--gtest_filter=HostMemory.ExcludesPeakOfStartingProgram", nullptr);
    std::_Exit(99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gputrain::device
