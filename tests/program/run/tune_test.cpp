// `gputrain tune lr`: its steps are those of a run.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

TEST(TuneLr, TakesTheStepsOfARunAtTheRatesOfItsRange) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "log: {interval: 1}\nlr_scheduler: {type: constant}\n");
  const std::vector<std::string> settings{"--set", "optimizer.lr=0.002", "--set", "optimizer.lr_base_batch_size=4"};
  const auto with_settings = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return gputrain(arguments);
  };
  const Result run = with_settings({"run", job, "--output-dir", folder / "run"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto losses = losses_of(folder / "run");
  const Result same =
      with_settings({"tune", "lr", job, "--min", "0.002", "--max", "0.002000000000001", "--steps", "20", "--json"});
  ASSERT_TRUE(same.exit_code == 0 || same.exit_code == 4) << same.err;
  const auto points = nlohmann::json::parse(same.out)["points"];
  ASSERT_EQ(points.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(points[i]["loss"].get<double>(), losses[i], 1e-9) << i;
}

TEST(TuneLr, SuggestsARateAndDrawsThem) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result tuned = gputrain({"tune", "lr", job, "--max", "10", "--output", folder / "lr.svg"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("lr      --set optimizer.lr="));
  EXPECT_THAT(tuned.out, HasSubstr("  suggested\n"));
  EXPECT_THAT(read_file(folder / "lr.svg"), HasSubstr(">falls fastest "));
}

TEST(TuneLr, RefusesWhatItCannotTell) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const Result flat = gputrain({"tune", "lr", job, "--min", "1e-12", "--max", "1e-10"});
  EXPECT_EQ(flat.exit_code, 4) << flat.out;
  EXPECT_THAT(flat.err, HasSubstr("the loss falls at no rate more than its noise"));
  const Result wrong = gputrain({"tune", "lr", job, "--min", "1", "--max", "0.1"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--min 1 is not below --max 0.1"));
}

}  // namespace
}  // namespace gputrain::testing_support
