// `gputrain doctor --hosts`, over hosts of which one is unlike the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <optional>
#include <sstream>

#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorOfHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    GPUTRAIN_SKIP_FOR(SshHosts::missing());
    hosts_.emplace(3);
  }

  Result doctor(std::vector<std::string> options, const std::string& hosts = "h1,h2,h3") const {
    options.insert(options.begin(), {"doctor", "--hosts", hosts});
    return gputrain(options, hosts_->environment());
  }
  std::string namespace_of(int host) const { return hosts_->entering(host).back(); }
  /// The process of its sshd.
  std::string server(int host) const {
    std::istringstream words(Program({"ip", "netns", "pids", namespace_of(host)}).wait(10).out);
    std::string id;
    words >> id;
    return id;
  }
  static void must(std::vector<std::string> words) {
    const Result result = Program(std::move(words)).wait(10);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  TemporaryFolder folder_;
  std::optional<SshHosts> hosts_;
};

TEST_F(DoctorOfHosts, FindsNothingBetweenEqualHosts) {
  const Result result = doctor({});
  EXPECT_THAT(result.out, HasSubstr("between hosts\n        ok   nothing differs")) << result.err;
}

TEST_F(DoctorOfHosts, NamesOddHostsAndDifferences) {
  must({"ip", "-n", namespace_of(2), "link", "set", "eth0", "mtu", "1400"});
  must({"ip", "-n", namespace_of(3), "route", "add", "unreachable", hosts_->address_of(1) + "/32"});
  must({"taskset", "-p", "-c", "0", server(3)});
  const Result result = doctor({});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.out, HasSubstr("MTU: 1400 on h2, but 1500 on all others"));
  EXPECT_THAT(result.out, HasSubstr("h3 cannot connect to h1 (" + hosts_->address_of(1)));
  EXPECT_THAT(result.out, Not(HasSubstr("h2 cannot connect")));
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_THAT(result.out, HasSubstr("cores: 1 on h3, but "));
  }
}

TEST_F(DoctorOfHosts, FindsFullDiskOfOneHost) {
  const std::string run = folder_.write("disk/here", "");
  must({"nsenter", "-m", "-t", server(2), "mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder_ / "disk"});
  const std::string job = write_gpt_job(folder_, "output_dir: '" + (folder_ / "disk/run") + "'\n");
  const Result result = doctor({"--json", job});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  for (const auto& host : report.at("hosts")) {
    EXPECT_EQ(host.at("problem"), "");
    for (const auto& finding : host.at("findings")) {
      const bool is_odd = host.at("host") == "h2" && finding.at("check") == "disk";
      if (is_odd) {
        EXPECT_THAT(finding.at("text").get<std::string>(), HasSubstr("one checkpoint needs"));
      }
      EXPECT_EQ(finding.at("verdict") == "bad", is_odd) << finding;
    }
  }
}

TEST_F(DoctorOfHosts, SaysWhyAHostCannotBeExamined) {
  hosts_->forget_key_of(2);
  const Result result = doctor({}, "h1,h2");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("h2\n        bad  cannot be examined"), HasSubstr("Host key verification failed")));
  EXPECT_TRUE(hosts_->are_empty_within(10)) << ::testing::PrintToString(hosts_->commands());
}

}  // namespace
}  // namespace gputrain::testing_support
