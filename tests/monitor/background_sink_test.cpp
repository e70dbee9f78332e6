#include "../../src/monitor/background_sink.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gputrain::monitor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What a sink was given, and a gate that holds it up while it is shut.
struct Tracker {
  void enter() {
    std::unique_lock lock(mutex);
    is_inside = true;
    changed.notify_all();
    changed.wait(lock, [&] { return is_open; });
  }
  void await_inside() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_inside; });
  }
  void open() {
    const std::lock_guard lock(mutex);
    is_open = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true, is_inside = false, is_full = false, is_closed = false;
  std::vector<int64_t> steps;
};

class TrackerSink final : public Sink {
 public:
  explicit TrackerSink(std::shared_ptr<Tracker> tracker) : tracker_(std::move(tracker)) {}
  void log(const Record& record) override {
    tracker_->enter();
    if (tracker_->is_full) throw std::runtime_error("no space left");
    tracker_->steps.push_back(record.step);
  }
  void truncate(int64_t step, int64_t) override { tracker_->steps.push_back(-step); }
  void close() override { tracker_->is_closed = true; }

 private:
  std::shared_ptr<Tracker> tracker_;
};

TEST(BackgroundSink, WritesEverythingInOrder) {
  const auto tracker = std::make_shared<Tracker>();
  BackgroundSink sink("tracker", std::make_unique<TrackerSink>(tracker));
  sink.truncate(7, 7);
  for (int64_t step = 8; step < 11; ++step) sink.log({.step = step});
  sink.close();
  EXPECT_THAT(tracker->steps, ElementsAre(-7, 8, 9, 10));
  EXPECT_TRUE(tracker->is_closed);
}

TEST(BackgroundSink, NeverWaitsForATrackerThatHangs) {
  const auto tracker = std::make_shared<Tracker>();
  tracker->is_open = false;
  BackgroundSink sink("tracker", std::make_unique<TrackerSink>(tracker),
                      {.room = 2, .patience = std::chrono::milliseconds(1)});
  testing::internal::CaptureStderr();
  sink.log({.step = 1});
  tracker->await_inside();
  for (int64_t step = 2; step < 6; ++step) sink.log({.step = step});
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "warning: log.sinks: tracker is slow: 2 records wait for it, and it does not get those that follow until it "
      "has caught up\n");
  testing::internal::CaptureStderr();
  sink.close();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: log.sinks: tracker does not answer, and may lack 4 records\n");
  tracker->open();
}

TEST(BackgroundSink, KeepsFewPicturesThatWait) {
  const auto tracker = std::make_shared<Tracker>();
  tracker->is_open = false;
  BackgroundSink sink("tracker", std::make_unique<TrackerSink>(tracker), {.picture_room = 25});
  const auto show = [&](int64_t step) {
    sink.log({.step = step, .pictures = {{.png = std::make_shared<const std::string>(10, 'x')}}});
  };
  testing::internal::CaptureStderr();
  show(1);
  tracker->await_inside();
  for (int64_t step = 2; step < 6; ++step) show(step);  // two of them have room
  sink.log({.step = 6});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("tracker is slow: 2 records wait for it"));
  tracker->open();
  testing::internal::CaptureStderr();
  sink.close();
  EXPECT_THAT(tracker->steps, ElementsAre(1, 2, 3, 6));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("tracker did not get 2 records"));
}

TEST(BackgroundSink, TellsOfARecordThatCouldNotBeWritten) {
  const auto tracker = std::make_shared<Tracker>();
  tracker->is_full = true;
  BackgroundSink sink("tracker", std::make_unique<TrackerSink>(tracker));
  sink.log({.step = 1});
  try {
    sink.close();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no space left"));
  }
  EXPECT_THAT(tracker->steps, IsEmpty());
}

}  // namespace
}  // namespace gputrain::monitor
