#include <cmath>
#include <fstream>

#include <gmock/gmock.h>

#include "gputrain/core/base64.hpp"
#include "monitor/tracked_run.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Tensorboard : public TrackedRun {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("tensorboard");
    GPUTRAIN_NEED_REFERENCE("absl");
    GPUTRAIN_NEED_REFERENCE("PIL");
  }
  std::unique_ptr<Recorder> begin(int64_t step = 0, int64_t evaluated_step = 0) {
    return TrackedRun::begin(sinks().with_defaults("tensorboard"), step, evaluated_step);
  }
  json found() const { return found_by("tensorboard_reference.py", run_folder() / "tb"); }
  /// Appends a part of a record, as a process that is killed leaves it.
  void tear_newest_file() const {
    fs::path newest;
    for (const auto& entry : fs::directory_iterator(run_folder() / "tb")) newest = std::max(newest, entry.path());
    std::ofstream(newest, std::ios::binary | std::ios::app) << std::string("\x20\0\0\0\0", 5);
  }
};

TEST_F(Tensorboard, ReadsCurvesEventsAndSettings) {
  auto run = begin();
  train(*run, 10, 2.5);
  train(*run, 20, std::nan(""));
  evaluate(*run, 20, 1.25);
  run->log({.step = 20, .kind = "event", .label = "back", .text = "to step \xff 10"});
  end(std::move(run));
  const json all = found();
  EXPECT_EQ(all["scalars"]["train/loss"], json({{10, 2.5}, {20, "nan"}}));
  EXPECT_EQ(all["scalars"]["val/loss"], json({{20, 1.25}}));
  EXPECT_EQ(all["scalars"]["epoch"], json({{10, 0.5}, {20, 0.5}}));
  EXPECT_EQ(all["texts"]["events"], json({{20, "back to step ? 10"}}));
  EXPECT_EQ(all["sessions"], json({{"name", "small/3f9a"},
                                   {"status", 1},
                                   {"hparams",
                                    {{"optimizer.lr", 1e-3},
                                     {"train.max_steps", 30.0},
                                     {"train.verify", true},
                                     {"model.type", "gpt"},
                                     {"env.MY_API_KEY", "***"}}}}));
}

TEST_F(Tensorboard, ShowsEachStepOnceAfterAResume) {
  auto killed = begin();
  for (const int64_t step : {10, 20, 30}) {
    train(*killed, step, static_cast<double>(step));
    evaluate(*killed, step, static_cast<double>(step));
  }
  end(std::move(killed), "failed", 1);
  fs::copy(run_folder() / "tb", run_folder() / "shown");
  tear_newest_file();
  const fs::path other = run_folder() / "tb/events.out.tfevents.1.other";
  std::ofstream(other) << "of another program";
  settings_["optimizer.lr"] = "0.5";
  auto resumed = begin(20, 10);  // the checkpoint was saved before the evaluation of its step
  evaluate(*resumed, 20, 21);
  train(*resumed, 30, 31);
  end(std::move(resumed));
  EXPECT_EQ(fs::file_size(other), 18U);
  fs::remove(other);
  const json all = found();
  EXPECT_EQ(all["scalars"]["train/loss"], json({{10, 10.0}, {20, 20.0}, {30, 31.0}}));
  EXPECT_EQ(all["scalars"]["val/loss"], json({{10, 10.0}, {20, 21.0}}));
  EXPECT_EQ(all["sessions"]["status"], 1);
  EXPECT_EQ(all["sessions"]["hparams"]["optimizer.lr"], 0.5);
  EXPECT_GT(fs::file_size(run_folder() / "tb/later.left"), 0U);

  // A TensorBoard that has read the first attempt as it was before.
  fs::copy(run_folder() / "tb", run_folder() / "shown", fs::copy_options::skip_existing | fs::copy_options::recursive);
  const json shown = found_by("tensorboard_reference.py", run_folder() / "shown");
  EXPECT_EQ(shown["scalars"]["train/loss"], all["scalars"]["train/loss"]);
}

TEST_F(Tensorboard, ShowsTextsOnceAfterAResume) {
  const auto show = [](Recorder& run, int64_t step) {
    run.log({.step = step, .kind = "sample", .texts = {{"sample", "# To be\n<b>or"}}});
  };
  auto killed = begin();
  for (const int64_t step : {10, 20, 30}) show(*killed, step);
  end(std::move(killed), "failed", 1);
  auto resumed = begin(20, 20);
  show(*resumed, 30);
  end(std::move(resumed));
  const json all = found();
  EXPECT_EQ(all["texts"]["sample"],
            json({{10, "    # To be\n    <b>or"}, {20, "    # To be\n    <b>or"}, {30, "    # To be\n    <b>or"}}));
}

TEST_F(Tensorboard, ShowsPicturesOnceAfterAResume) {
  auto killed = begin();
  for (const int64_t step : {10, 20, 30}) show(*killed, step, static_cast<uint8_t>(step));
  end(std::move(killed), "failed", 1);
  auto resumed = begin(20, 10);  // the checkpoint was saved before the evaluation of its step
  show(*resumed, 20, 25);
  end(std::move(resumed));
  const json all = found(), shown = all["images"]["val/worst"];
  const auto picture = [](char grey) { return json{{"size", {3, 2}}, {"rgb", to_base64(std::string(18, grey))}}; };
  EXPECT_EQ(shown, json({{10, picture(10)}, {20, picture(25)}}));
  const std::string caption = "    1. cat → dog\n    2. dog → cat";
  EXPECT_EQ(all["texts"]["val/worst/caption"], json({{10, caption}, {20, caption}}));
}

TEST_F(Tensorboard, ShowsAnswersBelowTheirPrompts) {
  auto run = begin();
  run->log(
      {.step = 10, .kind = "sample", .texts = {{"sample", "say c", "cc", true}, {"sample/2", "to", " be", false}}});
  end(std::move(run));
  const json all = found();
  EXPECT_EQ(all["texts"]["sample"], json::array({{10, "    say c\n    \n    assistant: cc"}}));
  EXPECT_EQ(all["texts"]["sample/2"], json::array({{10, "    to be"}}));
}

TEST_F(Tensorboard, GoesOnWithoutADiskAndSaysSoOnce) {
  auto run = begin();
  fs::remove_all(run_folder() / "tb");
  ::testing::internal::CaptureStderr();
  train(*run, 10, 1);
  train(*run, 20, 1);
  end(std::move(run));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, ::testing::HasSubstr("cannot append; training continues, but TensorBoard lacks metrics"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

}  // namespace
}  // namespace gputrain::monitor
