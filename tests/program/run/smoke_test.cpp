// `run --smoke`: an evaluation and a save after the first steps.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/data/png.hpp"
#include "support/endless_run.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Images of two classes, dark and light.
void write_images(const fs::path& folder) {
  for (const int shade : {20, 220}) {
    const fs::path of_class = folder / (shade < 100 ? "dark" : "light");
    fs::create_directories(of_class);
    for (int i = 0; i < 6; ++i) {
      const std::vector<uint8_t> pixels(8 * 8 * 3, static_cast<uint8_t>(shade + i));
      std::ofstream(of_class / fmt::format("{}.png", i), std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = 8, .height = 8, .channels = 3});
    }
  }
}

std::string write_images_job(const TemporaryFolder& folder) {
  for (const char* part : {"train", "val", "test"}) write_images(folder.path() / part);
  return folder.write("job.yaml",
                      fmt::format("schema: 1\ndevice: cpu\nprecision: fp64\n"
                                  "model: {{type: resnet18, config: {{stem: cifar, width: 4}}}}\n"
                                  "data: {{train: {{format: imagefolder, path: {0}/train}}, val: {{path: {0}/val}}, "
                                  "test: {{path: {0}/test}}}}\n"
                                  "optimizer: {{type: sgd, lr: 0.05}}\nlr_scheduler: {{type: plateau, patience: 0}}\n"
                                  "eval: {{interval: 4, batch_size: 3}}\nlog: {{interval: 1}}\n"
                                  "checkpoint: {{interval: null}}\nparallel: {{sync_bn: true}}\n"
                                  "train: {{max_steps: 8, global_batch_size: 4, ema: {{decay: 0.5}}}}\n",
                                  folder.path().string()));
}

TEST(Smoke, FindsInTheThirdStepWhatWouldFailAfterTheLast) {
  const TemporaryFolder folder;
  const std::string job = write_images_job(folder);
  fs::resize_file(folder.path() / "test" / "dark" / "2.png", 60);
  const Result late = gputrain({"run", job, "--output-dir", folder / "late"});
  EXPECT_EQ(late.exit_code, 3) << late.out << late.err;
  EXPECT_EQ(losses_of(folder / "late").size(), 8U);
  const Result early = gputrain({"run", job, "--output-dir", folder / "early", "--smoke"});
  EXPECT_EQ(early.exit_code, 3) << early.out << early.err;
  EXPECT_EQ(losses_of(folder / "early").size(), 3U);
  EXPECT_THAT(early.err, HasSubstr("2.png"));
  EXPECT_THAT(early.out, Not(HasSubstr("smoke ")));
}

TEST(Smoke, LeavesTheResultsAsTheyAre) {
  const TemporaryFolder folder;
  const std::string job = write_images_job(folder);
  const Result plain = ranks(2, job, folder / "plain");
  ASSERT_EQ(plain.exit_code, 0) << plain.out << plain.err;
  const Result smoke = ranks(2, job, folder / "smoke", {"--smoke"});
  ASSERT_EQ(smoke.exit_code, 0) << smoke.out << smoke.err;
  EXPECT_THAT(smoke.out, HasSubstr("smoke   3 steps, an evaluation and a save went well; training goes on"));
  EXPECT_THAT(checkpoints(folder / "smoke"), Contains("step-00000003"));
  EXPECT_THAT(checkpoints(folder / "plain"), Not(Contains("step-00000003")));
  EXPECT_EQ(timeless_metrics(folder / "smoke/metrics.jsonl"), timeless_metrics(folder / "plain/metrics.jsonl"));
  EXPECT_EQ(read_file(folder / "smoke/model.safetensors"), read_file(folder / "plain/model.safetensors"));
}

}  // namespace
}  // namespace gputrain::testing_support
