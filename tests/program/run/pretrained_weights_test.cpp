#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PretrainedWeights, ExplainWhatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  folder.write("weights.pth", "PK");
  folder.write("sharded/model.safetensors.index.json", R"({"weight_map": {"a": "model-1.safetensors"}})");
  folder.write("clone/w.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  folder.write("old/pytorch_model.bin", "PK");
  const auto refusal_with = [&](const std::string& weights) {
    const Result result =
        gputrain({"run", job, "--output-dir", folder / "run", "--set", "model.pretrained=" + weights});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal_with("openai-community/gpt2"), HasSubstr("gputrain fetch openai-community/gpt2"));
  EXPECT_THAT(refusal_with(folder / "weights.pth"), HasSubstr("safetensors.torch.save_file"));
  EXPECT_THAT(refusal_with(folder / "clone/w.safetensors"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal_with(folder / "sharded"), HasSubstr("model-1.safetensors is missing"));
  EXPECT_THAT(refusal_with(folder / "sharded/model.safetensors.index.json"),
              HasSubstr("try: the folder: " + folder / "sharded"));
  EXPECT_THAT(refusal_with(folder / "old"), HasSubstr("save_pretrained(NEW)"));
  EXPECT_THAT(refusal_with(folder / "."), HasSubstr("the folder that model.safetensors is in"));
}

TEST(PretrainedWeights, MayLieInShards) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base"}).exit_code, 0);
  const checkpoint::SafetensorsFile whole(folder / "base/model.safetensors");
  const fs::path shards = folder / "shards";
  fs::create_directories(shards);
  auto index = nlohmann::json::object();
  for (const std::string& name : whole.names()) {
    const std::string file = "of-" + std::to_string(index.size()) + ".safetensors";
    checkpoint::write_safetensors(shards / file, {{name, whole.tensor(name)}});
    index[name] = file;
  }
  folder.write("shards/model.safetensors.index.json", nlohmann::json{{"weight_map", index}}.dump());
  const auto loss = [&](const std::string& weights) {
    const Result result = gputrain({"eval", job, "--weights", weights, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(loss(shards), loss(folder / "base"));
}

TEST(PretrainedWeights, AskForConfigJsonWhereSizesDiffer) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const std::string start = folder / "base", other = "model.config.n_embd=16";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", start, "--set", "train.max_steps=1"}).exit_code, 0);
  const auto refusal = [&](const std::string& weights) {
    const Result result = gputrain({"eval", job, "--weights", weights, "--set", other});
    EXPECT_EQ(result.exit_code, 3) << result.out;
    return result.err;
  };
  EXPECT_THAT(refusal(start + "/model.safetensors"),
              HasSubstr("model.pretrained: " + start + "/ takes the sizes from"));
  fs::remove(start + "/config.json");
  EXPECT_THAT(refusal(start), HasSubstr("there is no config.json beside them"));
}

TEST(PretrainedWeights, MayMoveBetweenAttempts) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base"}).exit_code, 0);
  const auto go_on_from = [&](const std::string& weights, const std::string& steps) {
    return gputrain({"run", job, "--accept", "--output-dir", folder / "run", "--set", "model.pretrained=" + weights,
                     "--set", "train.max_steps=" + steps});
  };
  ASSERT_EQ(go_on_from(folder / "base", "20").exit_code, 0);
  fs::rename(folder / "base", folder / "moved");
  const Result result = go_on_from(folder / "moved", "21");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resume  step 20"));
}

TEST(PretrainedWeights, LoseLastLayerOfOtherClasses) {
  const TemporaryFolder folder;
  const auto job_of = [&](int classes, const std::string& model) {
    const std::string number = std::to_string(classes);
    return folder.write("job" + number + ".yaml", "schema: 1\nmodel: {type: mlp" + model +
                                                      "}\n"
                                                      "data: {train: {format: synthetic, samples: 8, num_classes: " +
                                                      number +
                                                      "}, image: {size: 4}}\n"
                                                      "train: {max_steps: 1, global_batch_size: 4}\noutput_dir: " +
                                                      folder / ("run" + number) + "\n");
  };
  ASSERT_EQ(gputrain({"run", job_of(5, "")}).exit_code, 0);
  const Result result = gputrain({"run", job_of(1, ", pretrained: " + folder / "run5")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("/run5 without its last layer, which has 5 classes"));
  EXPECT_THAT(result.err, HasSubstr("all samples are of one class"));
}

TEST(PretrainedWeights, WarnOfOtherTokens) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  const auto run = [&](const std::string& name, const std::string& setting) {
    const Result result =
        gputrain({"run", job, "--output-dir", folder / name, "--set", "train.max_steps=1", "--set", setting});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  run("same", "model.config.n_layer=1");
  EXPECT_THAT(run("more", "model.pretrained=" + folder / "same"), Not(HasSubstr("tokens")));
  run("wide", "model.config.vocab_size=300");
  EXPECT_THAT(run("other", "model.pretrained=" + folder / "wide"), HasSubstr("model.pretrained knows 300 tokens"));
}

}  // namespace
}  // namespace gputrain::testing_support
