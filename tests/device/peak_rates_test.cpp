#include "gputrain/device/peak_rates.hpp"

#include <gtest/gtest.h>

#include "gputrain/device/gpu_systems.hpp"

namespace gputrain::device {
namespace {

TEST(PeakRates, MatchDataSheetsWithoutSparsity) {
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA A100-SXM4-80GB", "bf16").value_or(0), 312e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA A100 80GB PCIe", "tf32").value_or(0), 156e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA H100 80GB HBM3", "fp16").value_or(0), 989.4e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA H100 PCIe", "fp16").value_or(0), 756.5e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA H200", "fp32").value_or(0), 66.9e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA H200 NVL", "bf16").value_or(0), 835.5e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA B200", "bf16").value_or(0), 2250e12);
  EXPECT_DOUBLE_EQ(peak_rate("NVIDIA GeForce RTX 4090", "bf16").value_or(0), 165.2e12);
  EXPECT_DOUBLE_EQ(peak_rate("Tesla V100-SXM2-32GB", "fp16").value_or(0), 125e12);
}

TEST(PeakRates, AreUnknownForOtherDevices) {
  EXPECT_EQ(peak_rate("NVIDIA A10G", "bf16"), std::nullopt);  // not an A10 and not an A100
  EXPECT_EQ(peak_rate("Tesla T4", "bf16"), std::nullopt);
  EXPECT_EQ(peak_rate("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16"), std::nullopt);
  EXPECT_EQ(peak_rate("Tesla V100-PCIE-16GB", "tf32"), std::nullopt);
  EXPECT_EQ(peak_rate("NVIDIA H200", "fp64"), std::nullopt);
  EXPECT_EQ(peak_rate("Intel(R) Xeon(R) Processor", "fp32"), std::nullopt);
}

TEST(GpuSystems, HaveARateInFp16) {
  for (const std::string& name : gpu_system_names()) {
    const auto system = gpu_system(name);
    ASSERT_TRUE(system) << name;
    EXPECT_TRUE(peak_rate(system->device, "fp16")) << name;
    if (system->has_links()) {
      EXPECT_GT(system->inside, system->between) << name;
    }
    EXPECT_GE(system->memory_bytes, 16'000'000'000) << name;
    EXPECT_GT(system->memory, 1e11) << name;
  }
  EXPECT_EQ(gpu_system("NVIDIA A100-SXM4-80GB").value().name, "a100");
  EXPECT_EQ(gpu_system("NVIDIA A100-SXM4-40GB").value().name, "a100-40");
  EXPECT_EQ(gpu_system("NVIDIA H100 PCIe").value().name, "h100-pcie");
  EXPECT_EQ(gpu_system("NVIDIA GeForce RTX 4090").value().name, "4090");
  EXPECT_EQ(gpu_system("NVIDIA A10").value().name, "a10");
  EXPECT_FALSE(gpu_system("NVIDIA GeForce RTX 4090 Laptop GPU"));
  EXPECT_FALSE(gpu_system("NVIDIA H200 NVL"));
  EXPECT_FALSE(gpu_system("h1000"));
}

}  // namespace
}  // namespace gputrain::device
