// A run folder for tests of trackers.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/data/png.hpp"
#include "gputrain/monitor/recorder.hpp"
#include "gputrain/monitor/summary.hpp"
#include "gputrain/monitor/tracked_settings.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"

namespace gputrain::monitor {

class TrackedRun : public ::testing::Test {
 protected:
  TrackedRun() { forget_wandb(); }

  /// Removes what would send runs to a server of Weights & Biases.
  static void forget_wandb() {
    for (const char* name : {"MODE", "API_KEY", "BASE_URL", "APP_URL", "PROJECT", "ENTITY"})
      unsetenv(("WANDB_" + std::string(name)).c_str());
    setenv("NETRC", "/dev/null", 1);
  }
  /// An attempt that goes on from these steps.
  std::unique_ptr<Recorder> begin(const config::Choice& sink, int64_t step = 0, int64_t evaluated_step = 0) {
    auto recorder = std::make_unique<Recorder>(std::vector<config::Choice>{sink},
                                               SinkRequest{run_folder(), no_console_, run_id_, "small", settings_});
    recorder->truncate(step, evaluated_step);
    return recorder;
  }
  static void train(Recorder& recorder, int64_t step, double loss) {
    recorder.log({.step = step, .epoch = 0.5, .kind = "train", .metrics = {{"train/loss", loss}}});
  }
  static void evaluate(Recorder& recorder, int64_t step, double loss) {
    recorder.log({.step = step, .epoch = 0.5, .kind = "eval", .metrics = {{"val/loss", loss}}});
  }
  /// Logs a picture of one colour.
  static void show(Recorder& recorder, int64_t step, uint8_t grey) {
    const std::vector<uint8_t> pixels(3 * 3 * 2, grey);
    const std::string png = data::png_of({.pixels = pixels.data(), .width = 3, .height = 2, .channels = 3});
    recorder.log(
        {.step = step,
         .kind = "picture",
         .pictures = {{"val/worst", std::make_shared<const std::string>(png), 3, 2, "1. cat → dog\n2. dog → cat"}}});
  }
  /// Writes what the end of a run writes, and closes the sinks.
  void end(std::unique_ptr<Recorder> recorder, const std::string& status = "done", int exit_code = 0) const {
    write_summary(run_folder() / "summary.json", {.run_id = "small/3f9a", .status = status, .exit_code = exit_code});
    recorder.reset();
  }

  /// What a script beside this file finds in `path`.
  nlohmann::json found_by(const std::string& script, const std::filesystem::path& path) const {
    const auto result = folder_.path() / "found.json";
    EXPECT_TRUE(::gputrain::testing::run_reference("monitor/" + script, {path.string(), result.string()}));
    return nlohmann::json::parse(std::ifstream(result));
  }
  std::filesystem::path run_folder() const { return folder_.path(); }

  testing_support::TemporaryFolder folder_;
  std::string run_id_ = "small/3f9a";
  Console no_console_{{.enabled = false}};
  Settings settings_{{"optimizer.lr", "1.0e-03"}, {"train.max_steps", "30"}, {"train.verify", "true"},
                     {"model.type", "gpt"},       {"eval.interval", "null"}, {"env.MY_API_KEY", "\"k-123\""}};
};

}  // namespace gputrain::monitor
