// `gputrain doctor` on this machine.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/device/host.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

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
  EXPECT_EQ(finding(result, "cpu").at("facts").at("cores").get<std::string>(),
            std::to_string(device::available_cores()));
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

TEST(Doctor, NamesItsBuild) {
  const Result result = gputrain({"doctor", "--json"}, kNoDriver);
  EXPECT_THAT(finding(result, "program").at("facts").at("build").get<std::string>(), SizeIs(16));
}

/// With a state folder of its own.
class DoctorBench : public ::testing::Test {
 protected:
  Result bench(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"doctor", "--bench", "--device", "cpu", "--json", "--folder", folder_ / ""});
    auto environment = kNoDriver;
    environment.insert({{"XDG_STATE_HOME", folder_ / "state"}, {"OMP_NUM_THREADS", "1"}});
    return gputrain(options, environment);
  }
  /// Multiplies all that is known of one measurement.
  void change_best(const std::string& part_of_name, double factor) const {
    const std::string name = "state/gputrain/machines.json";
    auto file = nlohmann::json::parse(read_file(folder_ / name));
    for (auto& kind : file.at("kinds")) {
      for (auto& [what, rate] : kind.items()) {
        if (what.find(part_of_name) != std::string::npos) rate = rate.get<double>() * factor;
      }
    }
    folder_.write(name, file.dump());
  }

  TemporaryFolder folder_;
};

TEST_F(DoctorBench, KeepsTheFirstRatesAndComparesLaterOnes) {
  const Result first = bench();
  for (const char* check : {"cpu", "memory", "disk"})
    EXPECT_THAT(first.out, HasSubstr("the first measured of this kind")) << check;
  const Result second = bench({"--min-percent", "1"});
  EXPECT_THAT(second.out, Not(HasSubstr("the first measured")));
  EXPECT_THAT(second.out, HasSubstr("of its kind"));
  const auto rates = nlohmann::json::parse(second.out).at("rates");
  EXPECT_EQ(rates.at("rates").size(), 3U);
  EXPECT_EQ(rates.at("best").size(), 3U);
}

TEST_F(DoctorBench, FindsWhatIsBelowTheBest) {
  bench();
  change_best("write to", 1000);
  const Result result = bench({"--min-percent", "2"});
  EXPECT_EQ(result.exit_code, 6) << result.out;
  const auto report = nlohmann::json::parse(result.out);
  std::vector<std::string> low;
  for (const auto& each : report.at("findings")) {
    if (each.at("text").get<std::string>().find("below 2 %") != std::string::npos) low.push_back(each.at("check"));
  }
  EXPECT_THAT(low, ElementsAre("disk"));
}

TEST_F(DoctorBench, WantsAUseForItsFolder) {
  EXPECT_EQ(gputrain({"doctor", "--folder", folder_ / ""}).exit_code, 2);
  EXPECT_EQ(gputrain({"doctor", "--min-percent", "50"}).exit_code, 2);
}

TEST(Doctor, RefusesWrongHosts) { EXPECT_EQ(gputrain({"doctor", "--hosts", "-oProxyCommand=x"}).exit_code, 2); }

}  // namespace
}  // namespace gputrain::testing_support
