// parallel.context: ranks that share texts train as one rank does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

const std::string kLlama =
    "n_head: 6, n_kv_head: 3, n_embd: 48, position: rotary, norm: rmsnorm, activation: swiglu, tie_embeddings: false";

class ContextParallel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 61; ++i) {
      const std::string text(static_cast<size_t>(3 + i * 7 % 31), static_cast<char>('a' + i % 5));
      lines += nlohmann::json{{"text", text + " and " + text}}.dump() + "\n";
    }
    folder_.write("texts.jsonl", lines);
  }

  /// Texts of up to 75 characters. Neither 2, 3 nor 4 ranks can share 75 positions equally.
  std::string write_job(const std::string& model, bool packs) {
    return folder_.write("job.yaml",
                         "schema: 1\ndevice: cpu\nprecision: fp64\nmodel: {type: gpt, config: {n_layer: 2, " + model +
                             ", block_size: 75}}\ndata: {train: {path: " + (folder_ / "texts.jsonl") +
                             ", format: jsonl}, val: {split: 10%}, text: {tokenizer: characters, packing: " +
                             (packs ? "true" : "false") +
                             ", max_length: 75}}\n"
                             "train: {max_steps: 20, global_batch_size: 8, max_grad_norm: 5}\n"
                             "optimizer: {type: adamw, lr: 3e-3}\neval: {interval: 10}\n"
                             "log: {interval: 1}\ncheckpoint: {interval: null}\n");
  }

  std::string run(int world, const std::string& job, const std::string& name,
                  const std::vector<std::string>& settings = {}) {
    std::vector<std::string> more;
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    const Result result = ranks(world, job, folder_ / name, more);
    EXPECT_EQ(result.exit_code, 0) << name << result.err;
    return folder_ / name;
  }

  static void expect_same(const std::string& one, const std::string& other) {
    expect_equal_losses(one + "/metrics.jsonl", other + "/metrics.jsonl", 1e-9);
    const auto metrics_of = [](const std::string& run) {
      return nlohmann::json::parse(read_file(run + "/summary.json")).at("metrics");
    };
    const auto expected = metrics_of(one), got = metrics_of(other);  // of the last step and evaluation
    for (const char* metric : {"train/grad_norm", "val/loss"}) {
      const double value = expected.at(metric);
      EXPECT_NEAR(got.at(metric), value, 1e-9 * value) << metric;
    }
  }

  TemporaryFolder folder_;
};

// Rows hold several texts. One layer sees all keys of a text, the other those nearby.
TEST_F(ContextParallel, TrainsPackedTextsLikeOneRank) {
  const std::string job = write_job(kLlama + ", window: 9, layer_types: [full_attention, sliding_attention]", true);
  const std::string one = run(1, job, "one");
  expect_same(one, run(2, job, "two", {"parallel.context=2"}));
  // One row at a time, whose positions look like those of all rows.
  expect_same(one, run(2, job, "rows", {"parallel.context=2", "train.micro_batch_size=1"}));
  expect_same(one, run(3, job, "three", {"parallel.context=3", "train.activation_checkpointing=block"}));
  expect_same(one, run(4, job, "stages", {"parallel.context=2", "parallel.pipeline=2", "train.micro_batch_size=1"}));
}

// Groups of ranks have texts of other lengths, and shards of weights that they gather at the same time. An epoch ends
// with a step in which a group may have no texts.
TEST_F(ContextParallel, TrainsSingleTextsLikeOneRank) {
  const std::string job = write_job("n_head: 2, n_embd: 32", false);
  const std::string one = run(1, job, "one");
  expect_same(one, run(4, job, "four", {"parallel.context=4", "train.gradient_accumulation_steps=2"}));
  expect_same(one, run(4, job, "pairs", {"parallel.context=2", "parallel.shard=parameters", "parallel.replicate=2"}));
}

TEST_F(ContextParallel, IsForCausalTextsOnly) {
  const std::string images = folder_.write("images.yaml",
                                           "schema: 1\ndevice: cpu\nmodel: {type: mlp}\n"
                                           "data: {train: {format: synthetic, samples: 64}, image: {size: 8}}\n"
                                           "train: {max_steps: 1, global_batch_size: 8}\nparallel: {context: 2}\n");
  const Result refused = ranks(2, images, folder_ / "images");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("ranks share the positions of texts only for a model of type gpt that learns the next token"));
  const Result uneven =
      ranks(3, write_job("n_head: 2, n_embd: 32", false), folder_ / "uneven", {"--set", "parallel.context=2"});
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("3 ranks cannot be groups of 2 that share texts"));
  EXPECT_THAT(uneven.err, HasSubstr("1 or 3, or another number of ranks"));
}

}  // namespace
}  // namespace gputrain::testing_support
