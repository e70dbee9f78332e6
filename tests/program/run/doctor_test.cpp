// `gputrain doctor` on this machine.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

/// With a driver of ours that says these things of its second GPU.
Result doctor_with_gpus(const TemporaryFolder& folder, const std::string& state, std::vector<std::string> options) {
  options.insert(options.begin(), "doctor");
  return gputrain(options, {{"GPUTRAIN_NVML", FAKE_NVML}, {"FAKE_NVML_STATE", folder.write("state", state)}});
}

const std::map<std::string, std::string> kNoDriver{{"GPUTRAIN_NVML", "/nowhere/libnvidia-ml.so.1"}};

nlohmann::json finding(const Result& result, const std::string& check) {
  const auto report = nlohmann::json::parse(result.out);
  for (const auto& each : report.at("findings")) {
    if (each.at("check") == check) return each;
  }
  return {};
}

TEST(Doctor, FitsOneTerminalPage) {
  const Result result = gputrain({"doctor"}, kNoDriver);
  EXPECT_THAT(result.out, HasSubstr("program ok   gputrain "));
  std::istringstream lines(result.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_LE(count, 40);
}

TEST(Doctor, PrintsJson) {
  const Result result = gputrain({"doctor", "--json"}, kNoDriver);
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("schema"), 1);
  EXPECT_EQ(report.at("fit"), result.exit_code == 0);
  EXPECT_THAT(finding(result, "cpu").at("facts").at("cores").get<std::string>(), ::testing::Not(""));
}

TEST(Doctor, RefusesMachineWithLostGpu) {
  const TemporaryFolder folder;
  const Result lost = doctor_with_gpus(folder, "lost 1", {"--json"});
  EXPECT_EQ(lost.exit_code, 6);
  EXPECT_EQ(finding(lost, "gpu 0").at("verdict"), "ok");
  EXPECT_EQ(finding(lost, "gpu 1").at("verdict"), "bad");
  EXPECT_THAT(doctor_with_gpus(folder, "lost 1", {}).out, HasSubstr("gpu 1   bad"));
}

TEST(Doctor, ComparesDiskWithCheckpointsOfJob) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "output_dir: '" + (folder / "run") + "'\n");
  const Result result = gputrain({"doctor", "--json", job}, kNoDriver);
  EXPECT_THAT(finding(result, "disk").at("text").get<std::string>(), HasSubstr("one checkpoint is "));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Doctor, RefusesWrongHosts) { EXPECT_EQ(gputrain({"doctor", "--hosts", "-oProxyCommand=x"}).exit_code, 2); }

}  // namespace
}  // namespace gputrain::testing_support
