// Each check of the host, once where it has something to say and once where it has not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/made_machine.hpp"

namespace gputrain::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using HostChecks = testing::MadeMachine;

const char* limits(const char* files, const char* locked) {
  static std::string text;
  text = std::string("Limit                     Soft Limit           Hard Limit           Units     \n") +
         "Max processes             96365                96365                processes \n" +
         "Max open files            1024                 " + files + "                files     \n" +
         "Max locked memory         " + locked + "              " + locked + "              bytes     ";
  return text.c_str();
}

TEST_F(HostChecks, TellVersions) {
  EXPECT_THAT(only(check_software).text, AllOf(HasSubstr("torch 2.11.0"), HasSubstr("CUDA 13.0"),
                                               HasSubstr("cuDNN 9.15"), HasSubstr("NCCL 2.28.9")));
}

TEST_F(HostChecks, FindSlowGovernor) {
  EXPECT_EQ(only(check_cpu).verdict, Verdict::ok);
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave");
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq");
  EXPECT_EQ(only(check_cpu).verdict, Verdict::warn);
  EXPECT_THAT(only(check_cpu).fix, HasSubstr("cpupower"));
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate");
  EXPECT_EQ(only(check_cpu).verdict, Verdict::ok);
}

TEST_F(HostChecks, FindBalancingOverNumaNodes) {
  EXPECT_THAT(check_numa(machine_), IsEmpty());
  write("/proc/sys/kernel/numa_balancing", "1");
  write("/sys/devices/system/node/node0/cpulist", "0-3");
  EXPECT_EQ(only(check_numa).verdict, Verdict::ok);
  write("/sys/devices/system/node/node1/cpulist", "4-7");
  write("/sys/bus/pci/devices/0000:3a:00.0/numa_node", "1");
  EXPECT_EQ(only(check_numa).verdict, Verdict::warn);
  EXPECT_THAT(only(check_numa).text, HasSubstr("2 nodes of memory; GPUs on nodes 1 1"));
}

TEST_F(HostChecks, FindMemoryThatIsTaken) {
  write("/proc/meminfo", "MemTotal: 104857600 kB\nMemAvailable: 94371840 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB");
  EXPECT_EQ(only(check_memory).verdict, Verdict::ok);
  write("/proc/meminfo", "MemTotal: 104857600 kB\nMemAvailable: 1048576 kB");
  EXPECT_EQ(only(check_memory).verdict, Verdict::warn);
  write("/proc/meminfo", "MemTotal: 104857600 kB\nMemAvailable: 94371840 kB\nSwapTotal: 8388608 kB\nSwapFree: 0 kB");
  EXPECT_THAT(only(check_memory).text, HasSubstr("8.00 GiB are swapped out"));
  write("/proc/self/cgroup", "0::/job");
  write("/sys/fs/cgroup/job/memory.max", "400000000");
  write("/sys/fs/cgroup/job/memory.current", "300000000");
  EXPECT_THAT(only(check_memory).text,
              HasSubstr("381 MiB allowed here (container, batch system) of 100 GiB, 95.4 MiB"));
}

TEST_F(HostChecks, FindSmallSharedMemory) {
  EXPECT_EQ(only(check_shared_memory).verdict, Verdict::ok);
  space_ = Space{64 << 20, 64 << 20};
  EXPECT_EQ(only(check_shared_memory).verdict, Verdict::warn);
  EXPECT_THAT(only(check_shared_memory).fix, HasSubstr("remount"));
  write("/.dockerenv", "");
  EXPECT_THAT(only(check_shared_memory).fix, HasSubstr("--shm-size"));
  space_.reset();
  EXPECT_EQ(only(check_shared_memory).verdict, Verdict::bad);
}

TEST_F(HostChecks, FindLowLimits) {
  write("/proc/self/limits", limits("65536", "8388608"));
  EXPECT_EQ(only(check_limits).verdict, Verdict::ok);
  EXPECT_EQ(only(check_limits).text, "open files 65536  locked memory 8.00 MiB  processes 96365");
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  EXPECT_THAT(only(check_limits).text, HasSubstr("InfiniBand needs unlimited locked memory"));
  write("/proc/self/limits", limits("1024", "unlimited"));
  EXPECT_THAT(only(check_limits).text, HasSubstr("too few open files"));
}

TEST_F(HostChecks, FindSlowNetwork) {
  EXPECT_THAT(only(check_network).text, HasSubstr("no way out"));
  machine_.interface = "eth0";
  machine_.address = "10.0.0.1";
  write("/sys/class/net/eth0/mtu", "1500");
  write("/sys/class/net/eth0/speed", "10000");
  EXPECT_EQ(only(check_network).verdict, Verdict::ok);
  EXPECT_THAT(only(check_network).text, HasSubstr("eth0 (10.0.0.1)  10 Gbit/s  MTU 1500"));
  write("/sys/class/net/eth0/speed", "1000");
  EXPECT_EQ(only(check_network).verdict, Verdict::ok);
  write("/sys/class/net/eth0/speed", "100");
  EXPECT_EQ(only(check_network).verdict, Verdict::warn);
}

TEST_F(HostChecks, FindFasterInterface) {
  machine_.interface = "eth0";
  write("/sys/class/net/eth0/mtu", "1500");
  write("/sys/class/net/eth0/speed", "10000");
  write("/sys/class/net/eth1/mtu", "9000");
  write("/sys/class/net/eth1/speed", "100000");
  write("/sys/class/net/eth1/device/vendor", "0x15b3");
  write("/sys/class/net/eth1/operstate", "down");
  EXPECT_EQ(only(check_network).verdict, Verdict::ok);
  write("/sys/class/net/eth1/operstate", "up");
  EXPECT_THAT(only(check_network).text, HasSubstr("faster: eth1  100 Gbit/s"));
}

TEST_F(HostChecks, FindInactiveInfiniBand) {
  EXPECT_THAT(check_infiniband(machine_), IsEmpty());
  write("/proc/modules", "nvidia_peermem 16384 0 - Live 0x0");
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  EXPECT_EQ(only(check_infiniband).verdict, Verdict::ok);
  write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  EXPECT_THAT(only(check_infiniband).text, HasSubstr("not active: mlx5_1:1"));
}

TEST_F(HostChecks, MissDirectWayFromGpuToNetwork) {
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  EXPECT_EQ(only(check_infiniband).fix, "sudo modprobe nvidia-peermem");
  machine_.gpus.gpus.clear();
  EXPECT_EQ(only(check_infiniband).verdict, Verdict::ok);
}

TEST_F(HostChecks, FindSmallSocketBuffers) {
  EXPECT_THAT(check_congestion_control(machine_), IsEmpty());
  write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
  write("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456");
  EXPECT_EQ(only(check_congestion_control).verdict, Verdict::ok);
  write("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t212992");
  EXPECT_EQ(only(check_congestion_control).verdict, Verdict::warn);
}

TEST_F(HostChecks, CompareDiskWithPlannedCheckpoints) {
  machine_.planned = {.folder = "/runs", .bytes = int64_t{10} << 30, .write_bytes_per_second = 1e9};
  EXPECT_EQ(only(check_disk).verdict, Verdict::ok);
  machine_.planned->write_bytes_per_second = 20e6;
  EXPECT_EQ(only(check_disk).verdict, Verdict::warn);
  machine_.planned->shortages = {"one checkpoint needs 10.0 GiB, 1.0 GiB are free"};
  machine_.planned->none_fits = true;
  EXPECT_EQ(only(check_disk).verdict, Verdict::bad);
}

TEST_F(HostChecks, FindFullDiskWithoutJob) {
  EXPECT_EQ(only(check_disk).verdict, Verdict::ok);
  space_ = Space{int64_t{64} << 30, 1 << 20};
  EXPECT_EQ(only(check_disk).verdict, Verdict::warn);
}

}  // namespace
}  // namespace gputrain::doctor
