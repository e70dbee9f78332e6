// `gputrain plan --prices`: what each way to rent GPUs costs, with the time that interruptions take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

class Rents : public ::testing::Test {
 protected:
  Result plan(Arguments more) {
    const std::string job = folder_.write(
        "job.yaml",
        "schema: 1\nprecision: bf16\n"
        "model: {type: gpt, config: {n_layer: 1, n_head: 8, n_embd: 512, block_size: 256, vocab_size: 4096}}\n"
        "data: {train: {format: synthetic, vocab_size: 4096, samples: 4096}}\n"
        "train: {max_steps: 5000000, global_batch_size: 32}\noptimizer: {type: adamw, lr: 1e-4}\n");
    more.insert(more.begin(), {"plan", job});
    return gputrain(more, {{"OMP_NUM_THREADS", "1"}});
  }
  std::string write_prices(const std::string& of_h100 = "{gpu: h100, on_demand: 3, reserved: 2.5, spot: 1.5}",
                           const std::string& date = "2026-11-09") {
    return folder_.write("prices.yaml",
                         "providers:\n- name: Cloud\n  source: https://example.org/prices\n  date: " + date +
                             "\n  prices:\n  - " + of_h100 + "\n  - {gpu: \"4090\", on_demand: 0.4}\n");
  }
  /// The ways to rent h100 by name.
  std::map<std::string, json> ways(Arguments more) {
    more.insert(more.end(), {"--gpus", "h100", "--prices", write_prices(), "--json"});
    const Result result = plan(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::map<std::string, json> all;
    const json page = json::parse(result.out, nullptr, false);
    for (const json& way : page["rent"]["ways"]) all[way["way"]] = way;
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(Rents, CostHoursTimesPriceAndWhatInterruptionsAdd) {
  auto all = ways({"--interruptions", "0.5", "--save-seconds", "20", "--restart-seconds", "600"});
  ASSERT_EQ(all.size(), 3U);
  for (const auto& [name, price] : {std::pair("on demand", 3.0), {"reserved", 2.5}, {"spot", 1.5}}) {
    const json& way = all[name];
    EXPECT_EQ(way["dollars_per_hour"], price) << name;
    const double seconds = way["seconds"];
    EXPECT_NEAR(way["dollars"], seconds / 3600 * price, 1e-6 * seconds) << name;
    EXPECT_GT(seconds, way["training_seconds"].get<double>()) << name;
    EXPECT_EQ(way["source"], "https://example.org/prices");
    EXPECT_EQ(way["date"], "2026-11-09");
  }
  EXPECT_EQ(all["on demand"]["interruptions"], 0);
  const json& spot = all["spot"];
  const double between = 7200, save = 20, restart = 600, interval = spot["save_interval_seconds"];
  const double young = std::sqrt(2 * save * between);
  EXPECT_NEAR(spot["young_interval_seconds"], young, 1e-6 * young);
  EXPECT_NEAR(interval, young, 0.05 * young);
  const double expected = spot["training_seconds"].get<double>() / interval * between * std::exp(restart / between) *
                          (std::exp((interval + save) / between) - 1);
  EXPECT_NEAR(spot["seconds"], expected, 1e-6 * expected);
  EXPECT_NEAR(spot["interruptions"], expected / between, 1e-6 * expected);
}

TEST_F(Rents, MixMachinesOnDemandWithSpotOnes) {
  auto all = ways({"--world-size", "16", "--gpus-per-host", "8", "--on-demand-nodes", "1", "--interruptions", "0.1"});
  ASSERT_EQ(all.size(), 4U);
  const json &mix = all["1 of 2 on demand"], &spot = all["spot"];
  EXPECT_EQ(mix["dollars_per_hour"], 2.25);
  EXPECT_NEAR(mix["dollars"], 16 * 2.25 * mix["seconds"].get<double>() / 3600, 1e-6 * mix["dollars"].get<double>());
  const double of_mix = mix["interruptions"].get<double>() / mix["seconds"].get<double>() * 3600;
  const double of_spot = spot["interruptions"].get<double>() / spot["seconds"].get<double>() * 3600;
  EXPECT_NEAR(of_mix, 0.1, 1e-9) << "one machine may be taken away";
  EXPECT_NEAR(of_spot, 0.2, 1e-9) << "each of two may";
}

TEST_F(Rents, AreListedWithTheirSourcesAndTheCheapest) {
  const Result result = plan({"--prices", write_prices()});  // the kinds of the file
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\nh100 "), HasSubstr("\n4090 "), HasSubstr("taken away 0.05 times an hour"),
                                HasSubstr(" reserved "), HasSubstr(" spot "), HasSubstr(" is the cheapest, with "),
                                HasSubstr("Cloud, 2026-11-09: https://example.org/prices\n")));
  const Result often = plan({"--gpus", "h100", "--prices", write_prices(), "--interruptions", "100000"});
  ASSERT_EQ(often.exit_code, 0) << often.err;
  EXPECT_THAT(often.out, HasSubstr("never ends"));
}

TEST_F(Rents, HaveATableOfPricesToCompareWith) {
  const Result result = plan({"--gpus", "a100,a6000", "--prices", GPUTRAIN_SOURCE_DIR "/configs/prices/gpus.yaml"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\na100 "), HasSubstr("\na6000 "), HasSubstr("Verda, 2026-10-29: https://")));
}

TEST_F(Rents, RefuseWhatTheyCannotCount) {
  const auto refused = [&](const Arguments& arguments, const std::string& why) {
    const Result result = plan(arguments);
    EXPECT_EQ(result.exit_code, 2) << why;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"--prices", folder_ / "nowhere.yaml"}, "nowhere.yaml");
  refused({"--prices", write_prices("{gpu: h1000, spot: 1}")}, "'h1000' is no kind of GPU");
  refused({"--prices", write_prices("{gpu: h100}")}, "has no price");
  refused({"--prices", write_prices("{gpu: h100, spot: -1}")}, "spot");
  refused({"--prices", write_prices("{gpu: h100, spot: 1}", "autumn")}, "'autumn' is not a day");
  refused({"--prices", write_prices(), "--gpus", "h100=2"}, "--gpus gives a price of h100");
  refused({"--prices", write_prices(), "--gpus", "h100", "--on-demand-nodes", "1"}, "the job has 1 machine");
  refused({"--interruptions", "0.1"}, "--prices");
}

}  // namespace
}  // namespace gputrain::testing_support
