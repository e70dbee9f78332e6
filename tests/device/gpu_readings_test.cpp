// Reads GPUs through a management library of ours that says what a file says.
#include "gputrain/device/gpu_readings.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::device {
namespace {

using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuReadingsTest : public ::testing::Test {
 protected:
  GpuReadingsTest() : folder_(::testing::TempDir() + "gpu_readings") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    say("");
    ::setenv("FAKE_NVML_STATE", state_.c_str(), 1);
    use(FAKE_NVML);
  }
  ~GpuReadingsTest() override {
    ::unsetenv("FAKE_NVML_STATE");
    ::unsetenv("GPUTRAIN_NVML");
    std::filesystem::remove_all(folder_);
  }

  static void use(const std::string& library) { ::setenv("GPUTRAIN_NVML", library.c_str(), 1); }
  void say(const std::string& text) const {
    std::ofstream(state_ + ".new") << text;
    std::filesystem::rename(state_ + ".new", state_);
  }
  /// The readings of both GPUs in this state; fails after a minute.
  GpuReadings read(const std::string& state, std::vector<std::string> gpus = {}) const {
    say(state);
    const GpuSampler sampler({.interval_seconds = 60, .gpus = std::move(gpus)});
    EXPECT_TRUE(sampler.wait_for(1, in_a_minute()));
    return sampler.latest();
  }
  static steady_clock::time_point in_a_minute() { return steady_clock::now() + std::chrono::minutes(1); }

  const std::string folder_, state_ = folder_ + "/state";
};

TEST_F(GpuReadingsTest, TellWhatAGpuIs) {
  const GpuReadings readings = read("");
  EXPECT_THAT(readings.obstacle, IsEmpty());
  EXPECT_EQ(readings.driver_version, "580.65.06");
  EXPECT_EQ(readings.cuda_version, 13000);
  ASSERT_EQ(readings.gpus.size(), 2U);
  const GpuReading& gpu = readings.gpus[1];
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.uuid, "GPU-22222222");
  EXPECT_EQ(gpu.pci_bus_id, "00000000:3B:00.0");
  EXPECT_EQ(gpu.compute_capability, 90);
  EXPECT_EQ(gpu.mig_enabled, false);
  EXPECT_EQ(gpu.ecc_enabled, true);
}

TEST_F(GpuReadingsTest, HaveUnits) {
  const GpuReading gpu = read("memory_used 1024").gpus.at(1);
  EXPECT_EQ(gpu.utilization, 0.5);
  EXPECT_EQ(gpu.memory_used_bytes, 1024);
  EXPECT_EQ(gpu.memory_total_bytes, int64_t{80} << 30);
  EXPECT_EQ(gpu.temperature_celsius, 40);
  EXPECT_DOUBLE_EQ(gpu.power_watts.value(), 350.5);
  EXPECT_DOUBLE_EQ(gpu.power_limit_watts.value(), 700);
  EXPECT_DOUBLE_EQ(gpu.power_limit_default_watts.value(), 700);
  EXPECT_DOUBLE_EQ(gpu.energy_joules.value(), 2.5);
  EXPECT_DOUBLE_EQ(gpu.sm_clock_hertz.value(), 1.98e9);
  EXPECT_DOUBLE_EQ(gpu.memory_clock_hertz.value(), 2.619e9);
  EXPECT_EQ(gpu.ecc_uncorrected, 0);
}

TEST_F(GpuReadingsTest, NameWhatSlowsAHotGpuDown) {
  const GpuReadings readings = read("temperature 90\nthrottle 0x45\n");
  EXPECT_THAT(readings.gpus.at(0).throttle_reasons, IsEmpty());
  EXPECT_EQ(readings.gpus.at(1).temperature_celsius, 90);
  EXPECT_THAT(readings.gpus.at(1).throttle_reasons, ElementsAre("power cap", "hardware thermal slowdown"));
}

TEST_F(GpuReadingsTest, CallIdleClocksNoThrottling) {
  EXPECT_THAT(read("throttle 0x113").gpus.at(1).throttle_reasons, IsEmpty());
}

TEST_F(GpuReadingsTest, KeepTheLatestXid) {
  const GpuSampler sampler({.interval_seconds = 0});
  ASSERT_TRUE(sampler.wait_for(1, in_a_minute()));
  EXPECT_EQ(sampler.latest().gpus.at(1).latest_xid, std::nullopt);
  say("xid 79");
  ASSERT_TRUE(sampler.wait_for(sampler.latest().number + 3, in_a_minute()));
  const GpuReadings readings = sampler.latest();
  EXPECT_EQ(readings.gpus.at(1).latest_xid, 79);
  EXPECT_EQ(readings.gpus.at(0).latest_xid, std::nullopt);
}

TEST_F(GpuReadingsTest, SayThatAGpuWasLost) {
  const GpuSampler sampler({.interval_seconds = 0});
  ASSERT_TRUE(sampler.wait_for(1, in_a_minute()));
  EXPECT_FALSE(sampler.latest().gpus.at(1).lost);
  say("lost 1");
  ASSERT_TRUE(sampler.wait_for(sampler.latest().number + 3, in_a_minute()));
  const GpuReading gpu = sampler.latest().gpus.at(1);
  EXPECT_TRUE(gpu.lost);
  EXPECT_EQ(gpu.uuid, "GPU-22222222");
  EXPECT_EQ(gpu.temperature_celsius, std::nullopt);
  EXPECT_FALSE(sampler.latest().gpus.at(0).lost);
}

TEST_F(GpuReadingsTest, CountAGpuThatWasLostBefore) {
  const GpuReadings readings = read("lost_before 1");
  ASSERT_EQ(readings.gpus.size(), 2U);
  EXPECT_TRUE(readings.gpus[1].lost);
  EXPECT_FALSE(readings.gpus[0].lost);
}

TEST_F(GpuReadingsTest, LeaveOutWhatADriverCannotTell) {
  const GpuReading gpu = read("power unsupported").gpus.at(1);
  EXPECT_EQ(gpu.power_watts, std::nullopt);
  EXPECT_EQ(gpu.temperature_celsius, 40);
}

TEST_F(GpuReadingsTest, DoWithoutTheCallsOfNewDrivers) {
  use(FAKE_OLD_NVML);
  const GpuReading gpu = read("throttle 0x40\nxid 79\n").gpus.at(1);
  EXPECT_EQ(gpu.energy_joules, std::nullopt);
  EXPECT_THAT(gpu.throttle_reasons, IsEmpty());
  EXPECT_EQ(gpu.latest_xid, std::nullopt);
  EXPECT_EQ(gpu.temperature_celsius, 40);
}

TEST_F(GpuReadingsTest, AreOfTheWantedGpusOnly) {
  ASSERT_EQ(read("", {"0000:3b:00.0"}).gpus.size(), 1U);
  EXPECT_EQ(read("", {"0000:3b:00.0"}).gpus[0].uuid, "GPU-22222222");
  EXPECT_EQ(read("", {"GPU-11111111"}).gpus.at(0).pci_bus_id, "00000000:3A:00.0");
}

TEST_F(GpuReadingsTest, SayThatThereIsNoDriver) {
  EXPECT_THAT(read("driver none").obstacle, HasSubstr("driver does not answer"));
  use("/nowhere/libnvidia-ml.so.1");
  const GpuReadings readings = read("");
  EXPECT_THAT(readings.obstacle, HasSubstr("no NVIDIA driver is installed"));
  EXPECT_THAT(readings.gpus, IsEmpty());
}

TEST_F(GpuReadingsTest, NeverWaitForAGpuThatHangs) {
  const std::string pipe = folder_ + "/hang";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  say("hang " + pipe);
  const GpuSampler sampler({.interval_seconds = 0});
  int writer = -1;  // can be opened when the call has begun to hang
  for (const auto latest = in_a_minute(); writer < 0 && steady_clock::now() < latest; std::this_thread::yield())
    writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(writer, 0);  // never closed: the call hangs until the process ends, but not the sampler's destructor
  EXPECT_EQ(sampler.latest().number, 0);
  EXPECT_FALSE(sampler.wait_for(1, steady_clock::now()));
}

}  // namespace
}  // namespace gputrain::device
