// `gputrain bench data`, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "datasets/tiny_images.hpp"
#include "gputrain/inspect/data_bench.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::map<std::string, std::string> kSingleThread{{"OMP_NUM_THREADS", "1"}};

json report_of(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  words.emplace_back("--json");
  const Result result = gputrain(words, kSingleThread);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(BenchData, TimesTextAsOneStage) {
  TemporaryFolder folder;
  const json report = report_of({"data", write_gpt_job(folder), "--samples", "50"});
  ASSERT_EQ(report["stages"].size(), 1U);
  EXPECT_EQ(report["stages"][0]["stage"], "read");
  EXPECT_GT(report["loader"].get<double>(), 0);
}

TEST(BenchData, TimesStagesOfImages) {
  TemporaryFolder folder;
  for (const char* name : {"a/1.png", "a/2.png", "b/1.png", "b/2.png"})
    folder.write(std::string("images/") + name, datasets::png_of({10, 200, 30}, 64, 48));
  const std::string job = folder.write(
      "job.yaml", "device: cpu\nmodel: {type: mlp}\ndata: {train: {format: imagefolder, path: " + (folder / "images") +
                      "}, image: {size: 16}, num_workers: 1}\ntrain: {max_steps: 1, global_batch_size: 2}\n");
  const json report = report_of({"data", job, "--samples", "20"});
  std::vector<std::string> stages;
  double seconds = 0;
  for (const json& stage : report["stages"]) {
    stages.push_back(stage["stage"]);
    seconds += 1 / stage["samples_per_second"].get<double>();
  }
  EXPECT_THAT(stages, ElementsAre("read", "decode", "resize", "augment"));
  EXPECT_NEAR(seconds * report["one_thread"].get<double>(), 1, 0.2);  // the stages are all of a read
  EXPECT_EQ(report["workers"], 1);
  EXPECT_GT(report["to_device"].get<double>(), 0);
}

TEST(BenchData, NamesTheSlowestStage) {
  app::DataRates rates{.stages = {{"read", 1000}, {"decode", 125}, {"resize", 1000}, {"augment", 1000}},
                       .one_thread = 91,
                       .loader = 170,
                       .preprocess = 10000,
                       .workers = 2,
                       .cpus = 8};
  EXPECT_THAT(app::data_advice(rates), HasSubstr("`decode` takes 73 % of reading: raise data.num_workers (now 2"));
  rates.is_cheap = true;
  EXPECT_THAT(app::data_advice(rates), HasSubstr("workers would only add to it"));
  rates.is_cheap = false;
  rates.cpus = 2;
  EXPECT_THAT(app::data_advice(rates), HasSubstr("store the images smaller"));
  rates.loader = 95;
  EXPECT_THAT(app::data_advice(rates), HasSubstr("2 workers together read 1.0 times as fast as one"));
}

}  // namespace
}  // namespace gputrain::testing_support
