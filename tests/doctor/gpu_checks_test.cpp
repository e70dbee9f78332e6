#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/made_machine.hpp"

namespace gputrain::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpuChecks : public testing::MadeMachine {
 protected:
  device::GpuReading& gpu() { return machine_.gpus.gpus[1]; }
  /// What is found about the second GPU; the first one is always fine.
  Finding of_second() const {
    const Findings findings = check_gpus(machine_);
    EXPECT_EQ(findings.at(0).verdict, Verdict::ok) << findings[0].text;
    return findings.at(1);
  }
};

TEST_F(GpuChecks, PassFineGpus) {
  EXPECT_EQ(of_second().verdict, Verdict::ok);
  EXPECT_THAT(of_second().text, HasSubstr("NVIDIA H100"));
  EXPECT_THAT(of_second().fix, IsEmpty());
}

TEST_F(GpuChecks, FindLostGpu) {
  gpu().lost = true;
  EXPECT_EQ(of_second().verdict, Verdict::bad);
  EXPECT_THAT(of_second().text, HasSubstr("fallen off the bus"));
}

TEST_F(GpuChecks, FindGpuThatIsTooOld) {
  gpu().compute_capability = 61;
  EXPECT_EQ(of_second().verdict, Verdict::bad);
  EXPECT_THAT(of_second().text, HasSubstr("compute capability 6.1"));
}

TEST_F(GpuChecks, FindHotGpu) {
  gpu().throttle_reasons = {"hardware thermal slowdown"};
  EXPECT_EQ(of_second().verdict, Verdict::warn);
  EXPECT_THAT(of_second().text, HasSubstr("thermal slowdown"));
  gpu().throttle_reasons = {"power cap"};  // a busy GPU runs into its usual limit
  EXPECT_EQ(of_second().verdict, Verdict::ok);
}

TEST_F(GpuChecks, FindPowerCap) {
  gpu().power_limit_watts = 500;
  EXPECT_EQ(of_second().verdict, Verdict::warn);
  EXPECT_EQ(of_second().fix, "sudo nvidia-smi -i 1 -pl 700");
}

TEST_F(GpuChecks, FindMemoryErrors) {
  gpu().ecc_uncorrected = 2;
  EXPECT_EQ(of_second().verdict, Verdict::bad);
  EXPECT_THAT(of_second().text, HasSubstr("2 memory errors"));
}

TEST_F(GpuChecks, FindMemoryInUse) {
  gpu().memory_used_bytes = int64_t{40} << 30;
  EXPECT_EQ(of_second().verdict, Verdict::warn);
  EXPECT_THAT(of_second().text, HasSubstr("40.0 GiB of its memory are in use"));
}

TEST_F(GpuChecks, FindSplitGpu) {
  gpu().mig_enabled = true;
  EXPECT_EQ(of_second().verdict, Verdict::warn);
  EXPECT_THAT(of_second().fix, HasSubstr("-mig 0"));
}

TEST_F(GpuChecks, FindGpusThatDriverDoesNotSee) {
  machine_.gpus.gpus.clear();
  EXPECT_THAT(check_gpus(machine_), IsEmpty());
  add_nvidia_device();
  EXPECT_EQ(only(check_gpus).verdict, Verdict::bad);
}

TEST_F(GpuChecks, KnowMinimumDriverOfCuda) {
  EXPECT_EQ(only(check_driver).verdict, Verdict::ok);
  machine_.gpus.driver_version = "575.57.08";
  EXPECT_EQ(only(check_driver).verdict, Verdict::bad);
  EXPECT_THAT(only(check_driver).text, HasSubstr("CUDA 13.0 needs at least 580.65.06"));
  EXPECT_THAT(only(check_driver).fix, HasSubstr("nvidia-driver-580"));
}

TEST_F(GpuChecks, AllowOlderDriverOfSameMajorCuda) {
  machine_.software.cuda = 12080;
  machine_.gpus.driver_version = "535.183.01";
  EXPECT_EQ(only(check_driver).verdict, Verdict::warn);
  machine_.gpus.driver_version = "525.60.12";
  EXPECT_EQ(only(check_driver).verdict, Verdict::bad);
  machine_.gpus.driver_version = "570.86.15";
  EXPECT_EQ(only(check_driver).verdict, Verdict::ok);
}

TEST_F(GpuChecks, AskForNoDriverWithoutGpus) {
  machine_.gpus = {.obstacle = "libnvidia-ml.so.1 is not there"};
  EXPECT_EQ(only(check_driver).verdict, Verdict::ok);
  EXPECT_THAT(only(check_driver).text, HasSubstr("training goes on the CPU"));
  add_nvidia_device();
  EXPECT_EQ(only(check_driver).verdict, Verdict::bad);
}

TEST_F(GpuChecks, SayThatDriverHangs) {
  machine_.gpus_hang = true;
  EXPECT_EQ(only(check_driver).verdict, Verdict::bad);
}

TEST_F(GpuChecks, SayThatBuildHasNoCuda) {
  machine_.software.cuda = 0;
  EXPECT_EQ(only(check_driver).verdict, Verdict::warn);
  EXPECT_THAT(only(check_driver).fix, HasSubstr("cmake --preset cuda"));
}

TEST_F(GpuChecks, SayWhatEnvironmentHides) {
  EXPECT_EQ(only(check_visible_gpus).verdict, Verdict::ok);
  machine_.variable = [](const char*) { return std::optional<std::string>("0"); };
  machine_.software.usable_gpus = 1;
  EXPECT_EQ(only(check_visible_gpus).verdict, Verdict::warn);
  EXPECT_THAT(only(check_visible_gpus).text, HasSubstr("1 of 2 GPUs can be used: CUDA_VISIBLE_DEVICES=0"));
  machine_.software.usable_gpus = 0;
  EXPECT_EQ(only(check_visible_gpus).verdict, Verdict::bad);
}

TEST_F(GpuChecks, ReadErrorsFromKernelLog) {
  EXPECT_THAT(only(check_xids).text, HasSubstr("cannot be read"));
  write("/dev/kmsg", "6,1,1,-;usb 1-1: new device");
  EXPECT_EQ(only(check_xids).verdict, Verdict::ok);
  write("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=7");
  EXPECT_EQ(only(check_xids).verdict, Verdict::ok);
  write("/dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7\n4,3,3,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=8");
  EXPECT_EQ(only(check_xids).verdict, Verdict::warn);
  EXPECT_THAT(only(check_xids).text, HasSubstr("Xid 79, 2 times: the GPU has fallen off the bus"));
}

}  // namespace
}  // namespace gputrain::doctor
