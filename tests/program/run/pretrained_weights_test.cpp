#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
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
  EXPECT_THAT(refusal(start + "/model.safetensors"), HasSubstr("without --set model.config"));
  fs::remove(start + "/job.resolved.yaml");
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

/// Trains a classifier of texts and offers its weights as a published folder, whose config.json may name its classes.
class PublishedClassifier : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 16; ++i)
      lines += nlohmann::json{{"text", i % 2 == 0 ? "good book" : "bad film"}, {"label", i % 2 == 0 ? "pos" : "neg"}}
                   .dump() +
               "\n";
    const std::string data = folder_.write("data.jsonl", lines);
    job_ =
        folder_.write("job.yaml", "schema: 1\nseed: 2\ndevice: cpu\nmodel: {type: " + GetParam() +
                                      ", config: {head: classifier, n_layer: 1, n_head: 2, n_embd: 16, dropout: 0}}\n"
                                      "data: {train: {format: jsonl, path: " +
                                      data + "}, val: {path: " + data +
                                      "}, text: {tokenizer: words, max_length: 8}}\n"
                                      "task: {type: text_classification}\n"
                                      "train: {max_steps: 30, global_batch_size: 8}\n"
                                      "optimizer: {type: adamw, lr: 0.02}\n");
    const Result trained = gputrain({"run", job_, "--output-dir", folder_ / "run"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const checkpoint::SafetensorsFile whole(folder_ / "run/model.safetensors");
    checkpoint::NamedTensors tensors;
    for (const std::string& name : whole.names()) tensors.emplace_back(name, whole.tensor(name));
    fs::create_directories(folder_ / "published");
    checkpoint::write_safetensors(folder_ / "published/model.safetensors", tensors, {{"format", "pt"}});
    config_ = nlohmann::json::parse(read_file(folder_ / "run/config.json"));
    ASSERT_EQ(config_["id2label"], (nlohmann::json{{"0", "neg"}, {"1", "pos"}}));
  }

  /// Measures the folder's weights on the job's data, before training.
  double accuracy_as(const std::string& first, const std::string& second, std::string* told = nullptr) {
    config_["id2label"] = {{"0", first}, {"1", second}};
    folder_.write("published/config.json", config_.dump());
    const Result result = gputrain({"eval", job_, "--json", "--output-dir", folder_ / "none", "--set",
                                    "model.pretrained=" + folder_ / "published"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (told != nullptr) *told = result.err;
    return nlohmann::json::parse(result.out)["val/accuracy"];
  }

  const TemporaryFolder folder_;
  std::string job_;
  nlohmann::json config_;
};
INSTANTIATE_TEST_SUITE_P(Models, PublishedClassifier, ::testing::Values("bert", "gpt"),
                         [](const auto& entry) { return entry.param; });

TEST_P(PublishedClassifier, HasItsRowsByTheNamesOfTheClasses) {
  EXPECT_EQ(accuracy_as("neg", "pos"), 100);
  EXPECT_EQ(accuracy_as("NEG", "Pos"), 100);
  EXPECT_EQ(accuracy_as("pos", "neg"), 0) << "the weights now say so";
  EXPECT_EQ(accuracy_as("LABEL_0", "LABEL_1"), 100);
  std::string told;
  EXPECT_EQ(accuracy_as("bad", "good", &told), 100);
  EXPECT_THAT(told, HasSubstr("class 0 is \"bad\" to these weights and \"neg\" in this data"));
}

TEST_P(PublishedClassifier, GivesTheNamesToWhatIsTrainedFromIt) {
  accuracy_as("pos", "neg");
  const Result result =
      gputrain({"run", job_, "--output-dir", folder_ / "next", "--set", "model.pretrained=" + folder_ / "published",
                "--set", "train.max_steps=1", "--set", "optimizer.lr=1e-30"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto config = nlohmann::json::parse(read_file(folder_ / "next/config.json"));
  EXPECT_EQ(config["id2label"], (nlohmann::json{{"0", "neg"}, {"1", "pos"}}));
  const Result measured = gputrain({"eval", job_, "--json", "--weights", folder_ / "next"});
  EXPECT_EQ(nlohmann::json::parse(measured.out)["val/accuracy"], 0) << measured.err;
}

TEST(PretrainedWeights, OfTimmsFoldersAreRead) {
  const TemporaryFolder folder;
  const auto job_of = [&](const std::string& name, const std::string& model) {
    return folder.write(name + ".yaml",
                        "schema: 1\ndevice: cpu\nmodel: {type: vit, config: {patch_size: 8, n_layer: 1, "
                        "n_head: 2, n_embd: 16, layout: timm}" +
                            model +
                            "}\ndata: {train: {format: synthetic, samples: 8, num_classes: 2}, image: "
                            "{size: [16, 32], mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}\n"
                            "train: {max_steps: 1, global_batch_size: 4}\noutput_dir: " +
                            folder / name + "\n");
  };
  ASSERT_EQ(gputrain({"run", job_of("base", "")}).exit_code, 0);
  fs::create_directories(folder / "hub");
  fs::copy(folder / "base/model.safetensors", folder / "hub/model.safetensors");
  folder.write("hub/config.json", R"({"architecture": "vit_tiny", "num_classes": 2, "pretrained_cfg":
                                      {"input_size": [3, 16, 32], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.4, 0.4],
                                       "crop_pct": 0.875, "interpolation": "bicubic"}})");
  const Result result = gputrain({"run", job_of("next", ", pretrained: " + folder / "hub")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("mean: [0.1, 0.2, 0.3], std: [0.4, 0.4, 0.4]"));
  EXPECT_THAT(result.err, HasSubstr("data.image.eval: {interpolation: bicubic} does as its config.json says"));
  const auto warnings_with = [&](const std::string& name, const std::string& setting) {
    return gputrain({"run", job_of(name, ", pretrained: " + folder / "hub"), "--set", "data.image.size=32", "--set",
                     setting})
        .err;
  };
  EXPECT_THAT(warnings_with("square", "seed=1"), HasSubstr("data.image.eval: {resize: 36, interpolation: bicubic}"));
  EXPECT_THAT(warnings_with("set", "data.image.eval={resize: 32, interpolation: bilinear}"),
              Not(HasSubstr("fitted otherwise")));
}

TEST(PretrainedWeights, AreComparedWithAPreprocessorBesideThem) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\ndevice: cpu\nmodel: {type: vit, config: {patch_size: 8, n_layer: 1, n_head: 2, n_embd: "
                   "16}}\ndata: {train: {format: synthetic, samples: 8, num_classes: 2}, image: {size: 16, mean: [0.5, "
                   "0.5, 0.5], std: [0.5, 0.5, 0.5]}}\ntrain: {max_steps: 1, global_batch_size: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base"}).exit_code, 0);
  fs::create_directories(folder / "hub");
  fs::copy(folder / "base/model.safetensors", folder / "hub/model.safetensors");
  const auto warnings_beside = [&](const std::string& processor) {
    folder.write("hub/preprocessor_config.json", processor);
    const std::string weights = "model.pretrained=" + folder / "hub/model.safetensors";
    const Result result = gputrain({"run", job, "--output-dir", folder / "next", "--new", "--set", weights});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(warnings_beside(R"({"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.4, 0.4], "resample": 3,
                                  "size": {"height": 16, "width": 16}})"),
              AllOf(HasSubstr("std: [0.4, 0.4, 0.4]} does as its preprocessor_config.json says"),
                    HasSubstr("{interpolation: bicubic} does as its preprocessor_config.json says"),
                    HasSubstr("fitted by squash")));
  EXPECT_THAT(warnings_beside(R"({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
                                  "size": {"shortest_edge": 16}, "do_center_crop": true,
                                  "crop_size": {"height": 16, "width": 16}})"),
              Not(HasSubstr("preprocessor_config.json")));
}

TEST(PretrainedWeights, OfATimmFolderGiveTheSizesAndTheNames) {
  const TemporaryFolder folder;
  const auto job_of = [&](const std::string& name, const std::string& model) {
    return folder.write(name + ".yaml",
                        "schema: 1\ndevice: cpu\nmodel: {type: vit, " + model +
                            "}\ndata: {train: {format: synthetic, samples: 8, num_classes: 2}, image: "
                            "{size: 16, mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4], eval: {resize: 18, "
                            "interpolation: bicubic}}}\n"
                            "train: {max_steps: 1, global_batch_size: 4}\noutput_dir: " +
                            folder / name + "\n");
  };
  const std::string small = "config: {patch_size: 8, n_layer: 1, n_head: 2, n_embd: 16";
  ASSERT_EQ(gputrain({"run", job_of("base", small + ", layout: timm}")}).exit_code, 0);
  fs::create_directories(folder / "hub");
  fs::copy(folder / "base/model.safetensors", folder / "hub/model.safetensors");
  folder.write("hub/config.json", R"({"architecture": "vit_tiny_patch16_224", "num_classes": 2, "model_args":
      {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}})");
  const std::string pretrained = "pretrained: " + folder / "hub";
  const Result next = gputrain({"run", job_of("next", pretrained)});
  ASSERT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(read_file(folder / "next/model.safetensors"),
              AllOf(HasSubstr("cls_token"), Not(HasSubstr("class_token"))));
  const auto exported = [&](const std::string& format) {
    const Result result = gputrain({"export", folder / "next", folder / format, "--format", format});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_file(folder / format + "/model.safetensors");
  };
  EXPECT_THAT(exported("torchvision"), HasSubstr("encoder.layers.encoder_layer_0.self_attention.in_proj_weight"));
  EXPECT_THAT(exported("timm"), HasSubstr("blocks.0.attn.qkv.weight"));
  const Result wrong = gputrain({"run", job_of("wrong", pretrained + ", config: {patch_size: 4}")});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("is 4 here and 8 in the pretrained model"));
  EXPECT_THAT(gputrain({"export", folder / "next", folder / "x"}).err, HasSubstr("--format onnx; of a ViT"));
  EXPECT_THAT(gputrain({"export", folder / "next", folder / "x", "--format", "hf"}).err, HasSubstr("timm"));
  EXPECT_EQ(gputrain({"run", job_of("again", "pretrained: " + folder / "timm")}).exit_code, 0);
  GPUTRAIN_NEED_REFERENCE("timm");
  EXPECT_TRUE(testing::run_reference("program/run/timm_folder_reference.py", {folder / "timm"}));
}

TEST(PretrainedWeights, OfImagesOfAnotherShapeAreToldOf) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\ndevice: cpu\nmodel: {type: mlp}\ndata: {train: {format: synthetic, samples: 8}, image: "
                   "{size: [8, 16]}}\ntrain: {max_steps: 1, global_batch_size: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base"}).exit_code, 0);
  const Result result = gputrain({"run", job, "--output-dir", folder / "next", "--set", "data.image.size=[16,8]",
                                  "--set", "model.pretrained=" + folder / "base"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("trained on images of 8 x 16 pixels, these are of 16 x 8"));
}

TEST(PretrainedWeights, OfColoursAreSummedForGreyImages) {
  const TemporaryFolder folder;
  const std::string job =
      folder.write("job.yaml",
                   "schema: 1\ndevice: cpu\nmodel: {type: resnet18, config: {width: 8}}\ndata: {train: {format: "
                   "synthetic, samples: 8}, image: {size: 16}}\ntrain: {max_steps: 1, global_batch_size: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "base"}).exit_code, 0);
  const Result result = gputrain({"run", job, "--output-dir", folder / "next", "--set", "data.image.channels=1",
                                  "--set", "model.pretrained=" + folder / "base"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("its first layer summed over colours for grey images"));
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
