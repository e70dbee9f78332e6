// parallel.pipeline: stages that have other units of a model train as one rank does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "like_one_rank.hpp"
#include "support/checkpoints.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kStagedLlama =
    "{n_layer: 4, n_head: 6, n_kv_head: 3, n_embd: 48, block_size: 16, position: rotary, norm: rmsnorm, activation: "
    "swiglu, tie_embeddings: false}";
// The last stage reads the embedding of the first one.
const std::string kStagedGpt2 = "{n_layer: 4, n_head: 4, n_embd: 32, block_size: 16}";

using PipelineParallel = LikeOneRank;

/// Settings of a step of so many micro-batches of the 8 samples.
std::vector<std::string> with(std::vector<std::string> settings, int micro_batches, int groups = 1) {
  settings.push_back("train.micro_batch_size=" + std::to_string(8 / micro_batches / groups));
  settings.push_back("train.gradient_accumulation_steps=" + std::to_string(micro_batches));
  return settings;
}

TEST_F(PipelineParallel, TrainsLlamaLikeOneRank) {
  const std::string job = write_job(kStagedLlama);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  expect_like_one(4, job, "four", with({"parallel.pipeline=4", "train.activation_checkpointing=block"}, 8));
  expect_like_one(2, job, "interleaved", with({"parallel.pipeline=2", "parallel.virtual_stages=2"}, 4));
  expect_like_one(4, job, "shards", with({"parallel.pipeline=2", "parallel.shard=parameters"}, 4, 2));
  expect_like_one(8, job, "mesh",
                  with({"parallel.pipeline=2", "parallel.tensor=2", "parallel.shard=parameters"}, 2, 2));
}

TEST_F(PipelineParallel, TrainsTiedGpt2LikeOneRank) {
  const std::string job = write_job(kStagedGpt2);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  expect_like_one(2, job, "few", with({"parallel.pipeline=2"}, 1));
  expect_like_one(4, job, "gradients", with({"parallel.pipeline=2", "parallel.shard=gradients"}, 4, 2));
  expect_like_one(4, job, "tensor", with({"parallel.pipeline=2", "parallel.tensor=2"}, 2));
  expect_like_one(4, job, "interleaved",
                  with({"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.shard=optimizer"}, 4, 2));
}

// Each stage writes its units, which another mesh reads wherever they are.
TEST_F(PipelineParallel, ResumesOnAnyMesh) {
  const std::string job = write_job(kStagedGpt2);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  const auto stages = with({"parallel.pipeline=2", "parallel.shard=optimizer"}, 4, 2);
  expect_like_one(4, job, "stages", stages);
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "stages"}).exit_code, 0);
  for (const char* copy : {"same", "alone", "tensor", "interleaved"})
    copy_without_the_end(folder_ / "stages", folder_ / copy);
  expect_like_one(4, job, "same", stages);
  EXPECT_THAT(differing_tensors(folder_ / "stages", folder_ / "same"), IsEmpty());
  expect_like_one(1, job, "alone", {});
  expect_like_one(4, job, "tensor", {"parallel.tensor=2", "parallel.shard=parameters"});
  expect_like_one(2, job, "interleaved", with({"parallel.pipeline=2", "parallel.virtual_stages=2"}, 2));
  copy_without_the_end(folder_ / "tensor", folder_ / "back");
  expect_like_one(2, job, "back", with({"parallel.pipeline=2"}, 4));
}

// The weights at the end are those of one rank, and weights that are read go to their stages.
TEST_F(PipelineParallel, WritesAndReadsWholeWeights) {
  const std::string job = write_job(kStagedLlama);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  ASSERT_EQ(run(4, job, "stages", with({"parallel.pipeline=2", "parallel.shard=parameters"}, 4, 2)).exit_code, 0);
  const std::string loss = loss_of(job, "one/model.safetensors");
  EXPECT_EQ(loss_of(job, "stages/model.safetensors"), loss);
  EXPECT_EQ(loss_of(job, "stages/ckpt/step-00000020"), loss);
  std::filesystem::remove_all(folder_ / "one");
  const std::string from = "model.pretrained=" + (folder_ / "stages/model.safetensors");
  ASSERT_EQ(run(1, job, "one", {from}).exit_code, 0);
  expect_like_one(2, job, "again", with({from, "parallel.pipeline=2"}, 4));
}

// Gradients overflow in the first steps; all stages skip these, and the scale falls on all of them.
TEST_F(PipelineParallel, SkipsOverflowsOnAllStages) {
  const std::string job = write_job(kStagedGpt2);
  const std::vector<std::string> half{"precision=fp16", "train.micro_batch_size=2", "log.interval=1",
                                      "train.gradient_accumulation_steps=4", "optimizer.lr=3"};
  ASSERT_EQ(run(1, job, "one", half).exit_code, 0);
  auto staged = half;
  staged.push_back("parallel.pipeline=2");
  ASSERT_EQ(run(2, job, "stages", staged).exit_code, 0);
  const auto scales = values(folder_ / "one/metrics.jsonl", "train/loss_scale");
  EXPECT_LT(scales.back(), scales.front()) << "no overflow";
  EXPECT_EQ(values(folder_ / "stages/metrics.jsonl", "train/loss_scale"), scales);
}

TEST_F(PipelineParallel, SaysWhatItCannotDo) {
  const std::string job = write_job(kStagedGpt2);
  const auto refused = [&](int world, const std::vector<std::string>& settings) {
    return refusal(world, job, settings);
  };
  EXPECT_THAT(refused(3, {"parallel.pipeline=2"}), HasSubstr("3 ranks cannot be 2 stages of as many ranks each"));
  EXPECT_THAT(refused(4, {"parallel.pipeline=2", "parallel.tensor=4"}),
              HasSubstr("2 ranks of a stage cannot be groups of 4 that share layers"));
  EXPECT_THAT(refused(2, with({"parallel.pipeline=2", "parallel.virtual_stages=3"}, 4)),
              HasSubstr("5 units of the model (its layers and its head) cannot be cut into 6 parts"));
  EXPECT_THAT(refused(2, with({"parallel.pipeline=2", "parallel.virtual_stages=2"}, 1)),
              HasSubstr("1 micro-batch a step is no multiple of 2 stages"));
  EXPECT_THAT(refused(4, {"parallel.pipeline=2", "parallel.shard=parameters"}), HasSubstr("tie_embeddings: false"));
  EXPECT_THAT(refused(2, {"parallel.pipeline=2", "train.micro_batch_size=auto"}),
              HasSubstr("auto measures one pass at a time"));
  EXPECT_THAT(refused(2, {"parallel.pipeline=2", "model.freeze=['*.mlp.*']"}),
              HasSubstr("frozen weights and adapters are not for stages"));
}

}  // namespace
}  // namespace gputrain::testing_support
