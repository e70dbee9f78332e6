#include "../../src/device/peak.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "gputrain/device/runtime.hpp"

namespace gputrain::device {
namespace {

/// The counters of an allocator.
struct Memory {
  int64_t held = 0, most = 0;
  Peak peak{[this] { return most; }, [this] { most = held; }};
  void hold(int64_t bytes) { most = std::max(most, held = bytes); }
};

TEST(Peak, ExcludesPausedAllocations) {
  Memory memory;
  memory.hold(7);
  memory.hold(5);
  memory.peak.pause();
  memory.hold(100);
  EXPECT_EQ(memory.peak.bytes(), 7);
  memory.hold(5);
  memory.peak.resume();
  EXPECT_EQ(memory.peak.bytes(), 7);
  memory.hold(8);
  EXPECT_EQ(memory.peak.bytes(), 8);
  memory.hold(5);
  memory.peak.forget();
  EXPECT_EQ(memory.peak.bytes(), 5);
}

// Comparing a kernel may start another comparison inside it.
TEST(Peak, ResumesOnlyAfterOutermostPause) {
  Memory memory;
  memory.hold(5);
  memory.peak.pause();
  memory.hold(100);
  memory.peak.pause();
  memory.hold(200);
  memory.peak.resume();
  memory.hold(300);
  EXPECT_EQ(memory.peak.bytes(), 5);
  memory.hold(6);
  memory.peak.resume();
  EXPECT_EQ(memory.peak.bytes(), 6);
}

TEST(Peak, ExcludesPausedAllocationsOnGpu) {
  if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  const at::Device device = choose_device("cuda", 0);
  const auto hold = [device](int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  };
  release_unused(device);
  const int64_t before = peak_allocated_bytes(device);
  {
    const PeakExclusion aside(device);
    hold(64 << 20);
  }
  EXPECT_EQ(peak_allocated_bytes(device), before);
  hold(32 << 20);
  EXPECT_GE(peak_allocated_bytes(device), before + (32 << 20));
}

}  // namespace
}  // namespace gputrain::device
