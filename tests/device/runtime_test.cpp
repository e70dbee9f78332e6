#include "gputrain/device/runtime.hpp"

#include <string>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/host.hpp"

namespace gputrain::device {
namespace {

Error refusal_of(std::string_view request, int local_rank) {
  try {
    choose_device(request, local_rank);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "was accepted";
  return Error(ExitCode::internal, {.what = ""});
}

TEST(ChooseDevice, AlwaysOffersTheCpu) {
  EXPECT_TRUE(choose_device("cpu", 0).is_cpu());
  EXPECT_TRUE(choose_device("cpu", 5).is_cpu());
}

TEST(ChooseDevice, PicksCpuOnlyWithoutGpu) {
  EXPECT_EQ(choose_device("auto", 0).is_cpu(), gpu_count() == 0);
}

TEST(ChooseDevice, RefusesUnknownDevice) {
  const Error error = refusal_of("gpu", 0);
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("'gpu'"));
}

TEST(ChooseDevice, ExplainsMissingGpu) {
  if (gpu_count() == 1) {  // a rank that sees only one GPU uses it, whatever its local rank
    EXPECT_EQ(choose_device("cuda", 5).index(), 0);
    return;
  }
  const Error error = refusal_of("cuda", gpu_count());
  EXPECT_EQ(error.code(), ExitCode::environment);
  const char* reason = !built_with_cuda() ? "built without CUDA" : gpu_count() == 0 ? "no NVIDIA GPU" : "has no GPU";
  EXPECT_THAT(error.what(), ::testing::HasSubstr(reason));
}

TEST(Runtime, HoldsTensorsAndReportsDeviceFacts) {
  const at::Device device = choose_device("auto", 0);
  const at::Tensor tensor = at::zeros({1 << 20}, at::TensorOptions().device(device));
  synchronize(device);
  EXPECT_FALSE(facts_of(device).name.empty());
  EXPECT_GT(facts_of(device).total_bytes, int64_t{1} << 28);
  EXPECT_EQ(facts_of(at::kCPU).name, cpu_name());
  EXPECT_EQ(peak_allocated_bytes(device) >= tensor.numel() * 4, !device.is_cpu());
}

}  // namespace
}  // namespace gputrain::device
