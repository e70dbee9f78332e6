// parallel.tensor: ranks that share the layers of a model train as one rank does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/run/start_page.hpp"
#include "like_one_rank.hpp"
#include "support/checkpoints.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Key heads that two ranks cannot share equally; queries and keys of three sizes of layers; an odd vocabulary.
const std::string kGrouped =
    "{n_layer: 2, n_head: 6, n_kv_head: 3, n_embd: 48, block_size: 16, position: rotary, norm: rmsnorm, activation: "
    "swiglu, "
    "qk_norm: true, tie_embeddings: false}";
const std::string kTied = "{n_layer: 2, n_head: 4, n_embd: 32, block_size: 16}";

TEST(MeshText, SaysWhichGroupsLieWithinHosts) {
  const std::vector<std::string> hosts{"a", "a", "b", "b", "c", "c", "d", "d"};
  const comm::Mesh texts{.ranks = 8, .context = 2, .tensor = 2};
  EXPECT_EQ(app::mesh_text(texts, hosts), "2 parts of each text across hosts  2 ranks share the layers within hosts");
  EXPECT_EQ(app::mesh_text(texts, {}), "2 parts of each text  2 ranks share the layers");
  EXPECT_EQ(app::mesh_text({.ranks = 8, .replicas = 2, .tensor = 2}, hosts),
            "2 replicas of 2 shards across hosts  2 ranks share the layers within hosts");
  EXPECT_EQ(app::mesh_text({.ranks = 8, .pipeline = 4}, hosts), "4 stages within hosts");
  EXPECT_EQ(app::mesh_text({.ranks = 8, .pipeline = 2}, hosts), "2 stages across hosts");
}

using TensorParallel = LikeOneRank;

TEST_F(TensorParallel, TrainsLlamaLikeOneRank) {
  const std::string job = write_job(kGrouped);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  expect_like_one(2, job, "two", {"parallel.tensor=2"});
  expect_like_one(3, job, "three", {"parallel.tensor=3", "train.activation_checkpointing=block"});
  expect_like_one(4, job, "mesh", {"parallel.tensor=2", "parallel.context=2", "parallel.shard=parameters"});
}

TEST_F(TensorParallel, TrainsTiedGpt2LikeOneRank) {
  const std::string job = write_job(kTied);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  expect_like_one(4, job, "four", {"parallel.tensor=4", "train.gradient_accumulation_steps=2"});
  expect_like_one(4, job, "cells", {"parallel.tensor=2"});
  expect_like_one(8, job, "eight", {"parallel.tensor=2", "parallel.shard=gradients", "parallel.replicate=2"});
}

// Columns and rows of matrices, which another mesh cuts elsewhere or not at all.
TEST_F(TensorParallel, ResumesOnAnyMesh) {
  const std::string job = write_job(kGrouped);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  const std::vector<std::string> cells{"parallel.tensor=2", "parallel.shard=optimizer"};
  expect_like_one(4, job, "cells", cells);
  EXPECT_EQ(gputrain({"ckpt", "verify", folder_ / "cells"}).exit_code, 0);
  for (const char* copy : {"same", "three", "shards", "alone"}) copy_without_the_end(folder_ / "cells", folder_ / copy);
  expect_like_one(4, job, "same", cells);
  EXPECT_THAT(differing_tensors(folder_ / "cells", folder_ / "same"), IsEmpty());
  expect_like_one(3, job, "three", {"parallel.tensor=3"});
  expect_like_one(2, job, "shards", {"parallel.shard=parameters"});
  expect_like_one(1, job, "alone", {});
  copy_without_the_end(folder_ / "shards", folder_ / "back");
  expect_like_one(2, job, "back", {"parallel.tensor=2"});
}

// The weights at the end are those of one rank, for other verbs and other programs.
TEST_F(TensorParallel, WritesWholeWeights) {
  const std::string job = write_job(kGrouped);
  ASSERT_EQ(run(1, job, "one").exit_code, 0);
  ASSERT_EQ(run(3, job, "three", {"parallel.tensor=3"}).exit_code, 0);
  const std::string loss = loss_of(job, "one/model.safetensors");
  EXPECT_EQ(loss_of(job, "three/model.safetensors"), loss);
  EXPECT_EQ(loss_of(job, "three/ckpt/step-00000020"), loss);
  // Weights that are read go to their ranks in parts.
  std::filesystem::remove_all(folder_ / "one");
  const std::string from = "model.pretrained=" + (folder_ / "three/model.safetensors");
  ASSERT_EQ(run(1, job, "one", {from}).exit_code, 0);
  expect_like_one(2, job, "again", {from, "parallel.tensor=2"});
}

TEST_F(TensorParallel, SaysWhatCannotBeShared) {
  const auto refused = [&](int world, const std::string& model, const std::vector<std::string>& settings) {
    return refusal(world, write_job(model), settings);
  };
  EXPECT_THAT(refused(4, kGrouped, {"parallel.tensor=4"}), HasSubstr("its 6 heads cannot be shared equally"));
  EXPECT_THAT(refused(3, kGrouped, {"parallel.tensor=2"}),
              HasSubstr("3 ranks cannot be groups of 2 that share layers"));
  EXPECT_THAT(refused(2, kTied, {"parallel.tensor=2", "model.config.dropout=0.1"}),
              HasSubstr("dropout would differ between the ranks"));
}

}  // namespace
}  // namespace gputrain::testing_support
