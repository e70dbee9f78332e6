#include <cmath>

#include <gmock/gmock.h>

#include "monitor/tracked_run.hpp"
#include "support/full_disk.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Csv : public TrackedRun {
 protected:
  void SetUp() override { GPUTRAIN_NEED_REFERENCE("numpy"); }
  std::unique_ptr<Recorder> begin(int64_t step = 0, int64_t evaluated_step = 0) {
    return TrackedRun::begin(sinks().with_defaults("csv"), step, evaluated_step);
  }
  fs::path file() const { return run_folder() / "metrics.csv"; }
  json found() const { return found_by("csv_reference.py", file()); }
  static json row(const char* step, const char* kind, const char* name, const char* value) {
    return {{"step", step}, {"epoch", "0.5"}, {"kind", kind}, {name, value}};
  }
};

TEST_F(Csv, HasAColumnForEachMetricWheneverItAppears) {
  auto run = begin();
  train(*run, 10, 2.5);
  evaluate(*run, 10, 1.25);
  run->log({.step = 10, .kind = "event", .label = "back", .text = "to step 10"});
  train(*run, 20, std::nan(""));
  train(*run, 30, -INFINITY);
  run->log({.step = 30, .epoch = 0.5, .kind = "eval", .metrics = {{"val/of \"x\", y", 1.0 / 3}}});
  end(std::move(run));
  EXPECT_EQ(found(), json({row("10", "train", "train/loss", "2.5"), row("10", "eval", "val/loss", "1.25"),
                           row("20", "train", "train/loss", "nan"), row("30", "train", "train/loss", "-inf"),
                           row("30", "eval", "val/of _x__ y", "0.3333333333333333")}));
}

TEST_F(Csv, HasEachStepOnceAfterAResume) {
  auto killed = begin();
  for (const int64_t step : {10, 20, 30}) {
    train(*killed, step, 1);
    evaluate(*killed, step, 2);
  }
  end(std::move(killed), "failed", 1);
  std::ofstream(file(), std::ios::app) << "123.5,2";  // what a process that is killed leaves
  auto resumed = begin(20, 10);                       // the checkpoint was saved before the evaluation of its step
  evaluate(*resumed, 20, 3);
  train(*resumed, 30, 4);
  end(std::move(resumed));
  EXPECT_EQ(found(), json({row("10", "train", "train/loss", "1"), row("10", "eval", "val/loss", "2"),
                           row("20", "train", "train/loss", "1"), row("20", "eval", "val/loss", "3"),
                           row("30", "train", "train/loss", "4")}));
  EXPECT_THAT(testing_support::read_file(file().string() + ".left"), ::testing::HasSubstr(",30,0.5,eval,,2\n"));
}

TEST_F(Csv, PutsAFileOfAnotherProgramAside) {
  std::ofstream(file()) << "step,loss\n1,2\n";
  auto run = begin();
  train(*run, 10, 1);
  end(std::move(run));
  EXPECT_EQ(found(), json::array({row("10", "train", "train/loss", "1")}));
  EXPECT_EQ(testing_support::read_file(file().string() + ".left"), "step,loss\n1,2\n");
}

TEST_F(Csv, GoesOnAfterAFullDiskAndSaysSoOnce) {
  auto first = begin();
  for (int64_t step = 1; step <= 200; ++step) train(*first, step, 1);
  end(std::move(first));
  auto run = begin(200, 200);
  ::testing::internal::CaptureStderr();
  {
    const ::gputrain::testing::FullDisk full(fs::file_size(file()));
    train(*run, 201, 1);
    evaluate(*run, 201, 1);
    train(*run, 202, 1);
    run.reset();
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  auto later = begin(200, 200);
  evaluate(*later, 300, 1);
  end(std::move(later));
  const json rows = found();
  EXPECT_EQ(rows.size(), 201U);
  EXPECT_EQ(rows.back(), row("300", "eval", "val/loss", "1"));
}

}  // namespace
}  // namespace gputrain::monitor
