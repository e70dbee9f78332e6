// `gputrain doctor --hosts`, over hosts of which one is unlike the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <list>
#include <optional>

#include "support/loop_disk.hpp"
#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
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
  /// On this host `gputrain` is a script that ends in `command`, in which REAL stands for another copy of the program.
  void replace_program(int host, const std::string& command, const std::function<void(std::string&)>& change = {}) {
    const std::string name = "h" + std::to_string(host), real = folder_.write(name + "/bin/gputrain", "");
    const fs::path library = fs::path(gputrain_path()).parent_path().parent_path() / "lib/libgputrain.so";
    fs::copy_file(gputrain_path(), real, fs::copy_options::overwrite_existing);
    if (change) {
      std::string bytes = read_file(library);
      change(bytes);
      folder_.write(name + "/lib/libgputrain.so", bytes);
    } else {
      fs::create_directory_symlink(library.parent_path(), folder_ / (name + "/lib"));
    }
    std::string script = "#!/bin/sh\n" + command + "\n";
    script.replace(script.find("REAL"), 4, real);
    const std::string wrapper = folder_.write(name + "/script", script);
    fs::permissions(wrapper, fs::perms::owner_all);
    hosts_->change(host, {"mount", "--bind", wrapper, gputrain_path()});
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
  must({"taskset", "-p", "-c", "0", std::to_string(hosts_->server(3))});
  const Result result = doctor({});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.out, HasSubstr("MTU: 1400 on h2, but 1500 on all others"));
  EXPECT_THAT(result.out, HasSubstr("h3 cannot connect to h1 (" + hosts_->address_of(1)));
  EXPECT_THAT(result.out, Not(HasSubstr("h2 cannot connect")));
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_THAT(result.out, HasSubstr("cores: 1 on h3, but "));
  }
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST_F(DoctorOfHosts, NamesOtherProgramsAndClocks) {
  GPUTRAIN_SKIP_FOR(testing::missing_program({"faketime"}));
  const auto report = nlohmann::json::parse(gputrain({"doctor", "--json"}).out);
  const std::string version = report.at("findings").at(0).at("facts").at("gputrain"),
                    build = report.at("findings").at(0).at("facts").at("build");
  replace_program(1, "REAL \"$@\" | sed -u 's/\"gputrain\":\"" + version + "\"/\"gputrain\":\"0.0.0\"/'");
  replace_program(2, "FAKETIME_DONT_FAKE_MONOTONIC=1 exec faketime -f +10s REAL \"$@\"");
  replace_program(3, "exec REAL \"$@\"", [&](std::string& library) {
    const size_t at = library.find(bytes_of(build));
    ASSERT_NE(at, std::string::npos);
    library[at] = static_cast<char>(library[at] ^ 1);
  });
  const Result result = doctor({});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.out, HasSubstr("gputrain: 0.0.0 on h1, but " + version + " on all others"));
  EXPECT_THAT(result.out, ContainsRegex("the clock of h2 is (9|10)[0-9.]*s ahead of ours"));
  EXPECT_THAT(result.out, ContainsRegex("build: [0-9a-f]{16} on h3, but " + build));
  EXPECT_THAT(result.out, Not(AnyOf(HasSubstr("the clock of h1"), HasSubstr("the clock of h3"))));
}

TEST_F(DoctorOfHosts, NamesSlowDisk) {
  GPUTRAIN_SKIP_FOR(LoopDisk::missing());
  fs::create_directory(folder_ / "disk");
  std::list<LoopDisk> disks;
  for (const int host : {1, 2, 3}) disks.emplace_back(*hosts_, host, folder_ / "disk");
  disks.back().slow_down(4 << 20);
  const Result named = doctor({"--folder", folder_ / "disk"});
  EXPECT_THAT(named.out, ContainsRegex("disk +warn h3 writes [0-9.]+ MiB/s, others ")) << named.err;
  EXPECT_THAT(named.out, Not(AnyOf(HasSubstr("h1 writes"), HasSubstr("h2 writes"))));
  // Also by the best of its kind, among what else is measured; the network is not slow.
  for (const int host : {1, 2, 3})
    hosts_->change(host, {"sh", "-c", "mkdir -p ~/.local/state && mount -t tmpfs tmpfs ~/.local/state"});
  auto environment = hosts_->environment();
  environment["XDG_STATE_HOME"] = folder_ / "state";
  const Result measured = gputrain({"doctor", "--hosts", "h1,h2,h3", "--folder", folder_ / "disk", "--bench",
                                    "--device", "cpu", "--min-percent", "5", "--json"},
                                   environment);
  EXPECT_EQ(measured.exit_code, 6) << measured.err;
  const auto report = nlohmann::json::parse(measured.out);
  for (const auto& host : report.at("hosts")) {
    EXPECT_EQ(host.at("rates").at("rates").size(), 4U) << host.at("rates");
    for (const auto& finding : host.at("findings")) {
      const bool is_low = finding.at("text").get<std::string>().find("below 5 %") != std::string::npos;
      const bool is_written = finding.at("text").get<std::string>().starts_with("write to ext4");
      EXPECT_EQ(is_low, host.at("host") == "h3" && is_written) << finding;
    }
  }
  EXPECT_THAT(read_file(folder_ / "state/gputrain/machines.json"), HasSubstr("one connection"));
}

TEST_F(DoctorOfHosts, FindsFullDiskOfOneHost) {
  const std::string run = folder_.write("disk/here", "");
  hosts_->change(2, {"mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder_ / "disk"});
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

TEST_F(DoctorOfHosts, NamesHostsThatDoNotShareTheRunFolder) {
  fs::create_directory(folder_ / "disk");
  const std::string job = write_gpt_job(folder_, "output_dir: '" + (folder_ / "disk/run") + "'\n");
  EXPECT_THAT(doctor({job}).out, Not(HasSubstr("not see")));
  hosts_->change(2, {"mount", "-t", "tmpfs", "tmpfs", folder_ / "disk"});
  const Result alone = doctor({job});
  EXPECT_THAT(alone.out, ContainsRegex("folder +warn h2 does not see")) << alone.err;
  const std::string sharded =
      write_gpt_job(folder_, "output_dir: '" + (folder_ / "disk/run") + "'\nparallel: {shard: optimizer}\n");
  const Result parts = doctor({sharded});
  EXPECT_EQ(parts.exit_code, 6) << parts.err;
  EXPECT_THAT(parts.out, ContainsRegex("folder +bad +h2 does not see"));
  EXPECT_TRUE(fs::is_empty(folder_ / "disk"));  // no mark stays
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
