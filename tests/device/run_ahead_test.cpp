// A fake device: the test decides when a queued step is done.
#include "gputrain/device/run_ahead.hpp"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::device {
namespace {

const at::Device kImagined(c10::DeviceType::PrivateUse1, 0);
const c10::Stream kTheStream(c10::Stream::UNSAFE, kImagined, 7);

int queued = 0, done = 0;  // steps

class ImaginedDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kImagined.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kImagined; }
  c10::Device getDevice() const override { return kImagined; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return kTheStream; }
  c10::Stream exchangeStream(c10::Stream) const override { return kTheStream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    EXPECT_EQ(stream, kTheStream);
    *event = new int(queued);
  }
  bool queryEvent(void* event) const override { return *static_cast<int*>(event) <= done; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<int*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, ImaginedDevice)

void no_look(size_t) { ADD_FAILURE() << "there is nothing to wait for"; }

class RunAheadTest : public ::testing::Test {
 protected:
  RunAheadTest() { queued = done = 0; }
  void queue_steps(int count) {
    for (int i = 0; i < count; ++i) ++queued, ahead_.mark();
  }
  RunAhead ahead_{kImagined};
};

TEST_F(RunAheadTest, WaitsForAllButTheLastSteps) {
  queue_steps(2);
  ahead_.wait(2, no_look);
  queue_steps(3);
  int looks = 0;
  std::vector<size_t> marked_after;
  ahead_.wait(2, [&](size_t after) {
    done = ++looks / 2;
    marked_after.push_back(after);
  });
  EXPECT_EQ(done, 3);
  EXPECT_EQ(marked_after.front(), 4u);
  EXPECT_EQ(marked_after.back(), 2u);
  ahead_.wait(2, no_look);
}

TEST_F(RunAheadTest, ChecksEachFinishedStep) {
  queue_steps(3);
  done = 3;
  int looks = 0;
  ahead_.wait(1, [&](size_t) { ++looks; });
  EXPECT_EQ(looks, 2);
  // An aborted collective also counts as done: only the check reports it.
  EXPECT_THROW(ahead_.wait(0, [](size_t) { throw std::runtime_error("it was aborted"); }), std::runtime_error);
}

TEST_F(RunAheadTest, EndsWaitWhenACheckThrows) {
  queue_steps(1);
  EXPECT_THROW(ahead_.wait(0, [](size_t) { throw std::runtime_error("the others have gone"); }), std::runtime_error);
  done = 1;
  int looks = 0;
  ahead_.wait(0, [&](size_t) { ++looks; });
  EXPECT_EQ(looks, 1);
}

TEST(RunAheadOnCpu, WaitsForNothing) {
  RunAhead ahead(at::kCPU);
  ahead.mark();
  ahead.wait(0, no_look);
}

}  // namespace
}  // namespace gputrain::device
