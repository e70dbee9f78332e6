// `launch.admission`: hosts are measured before the first start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <list>
#include <optional>

#include "support/loop_disk.hpp"
#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// One host, this machine, with a state folder of its own.
class Admission : public ::testing::Test {
 protected:
  Result launch(const std::string& admission) {
    const std::string job =
        write_gpt_job(folder_, "device: cpu\nlaunch: {nproc_per_node: 1, admission: " + admission + "}\n");
    return gputrain({"launch", "run", job, "--output-dir", folder_ / "a run"},
                    {{"XDG_STATE_HOME", folder_ / "state"}, {"OMP_NUM_THREADS", "1"}});
  }

  TemporaryFolder folder_;
};

TEST_F(Admission, LetsFineHostTrainAndRefusesSlowOne) {
  const Result fine = launch("{min_percent: 5}");
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_THAT(fine.out, AllOf(HasSubstr("launch  measuring 1 host"), HasSubstr("1 rank on localhost:1")));

  // As if a machine of this kind had once been much faster.
  const std::string name = "state/gputrain/machines.json";
  auto file = nlohmann::json::parse(read_file(folder_ / name));
  for (auto& kind : file.at("kinds")) kind["fp32 product"] = 1e18;
  folder_.write(name, file.dump());
  const Result slow = launch("{min_percent: 5}");
  EXPECT_EQ(slow.exit_code, 6) << slow.out;
  EXPECT_THAT(slow.err, AllOf(HasSubstr("launch.admission (at least 5 %) refuses localhost: cpu: fp32 product"),
                              HasSubstr("gputrain doctor --bench")));
  EXPECT_THAT(slow.out, Not(HasSubstr("1 rank on")));
}

TEST_F(Admission, RefusesExclusionOfNeededHosts) {
  const Result result = launch("{action: exclude}");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no host can be left out"));
}

/// Three hosts, of which the last one writes slowly.
class AdmissionOfHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_SKIP_FOR(SshHosts::missing());
    GPUTRAIN_SKIP_FOR(LoopDisk::missing());
    std::filesystem::create_directory(folder_ / "disk");
    hosts_.emplace(3);
    for (const int host : {1, 2, 3}) {
      disks_.emplace_back(*hosts_, host, folder_ / "disk");
      hosts_->change(host, {"sh", "-c", "mkdir -p ~/.local/state && mount -t tmpfs tmpfs ~/.local/state"});
    }
    disks_.back().slow_down(4 << 20);
  }
  Result launch(const std::string& admission) {
    const std::string job =
        write_gpt_job(folder_, "device: cpu\nenv: {OMP_NUM_THREADS: 1}\nlaunch: {admission: " + admission + "}\n");
    return gputrain(
        {"launch", "--hosts", "h1,h2,h3", "--nnodes", "2:3", "run", job, "--output-dir", folder_ / "disk/a run"},
        hosts_->environment());
  }

  TemporaryFolder folder_;
  std::optional<SshHosts> hosts_;
  std::list<LoopDisk> disks_;
};

TEST_F(AdmissionOfHosts, LeavesOutSlowHost) {
  const Result result = launch("{min_percent: 5, action: exclude}");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("left out, h3: disk: write to ext4 "), HasSubstr("2 ranks on h1:1, h2:1")));
}

TEST_F(AdmissionOfHosts, RefusesSlowHost) {
  const Result result = launch("{min_percent: 5, action: refuse}");
  EXPECT_EQ(result.exit_code, 6) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr(" refuses h3: disk: write to ext4 "), Not(HasSubstr("h2: "))));
}

}  // namespace
}  // namespace gputrain::testing_support
