// `gputrain init`: jobs for data that it looks at.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gputrain/data/png.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Images of two classes; `growth`: by how much each is larger than the one before; `widths`: width in heights.
void write_classes(const fs::path& folder, int64_t side, int64_t growth, int64_t widths = 1) {
  for (const char* name : {"cat", "dog"}) {
    fs::create_directories(folder / name);
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t length = side + i * growth;
      const std::vector<uint8_t> pixels(static_cast<size_t>(3 * length * length * widths),
                                        static_cast<uint8_t>(20 * i));
      std::ofstream(folder / name / (std::to_string(i) + ".png"), std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = widths * length, .height = length, .channels = 3});
    }
  }
}

/// The job that is written, which `run --dry-run` must accept.
std::string job_for(const TemporaryFolder& folder, const std::string& data) {
  const std::string job = folder / "job.yaml";
  fs::remove(job);
  const Result result = gputrain({"init", data, "--output", job});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Result dry = gputrain({"run", job, "--dry-run", "--output-dir", folder / "run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.out << dry.err;
  return read_file(job);
}

TEST(InitVerb, WritesJobsThatADryRunAccepts) {
  const TemporaryFolder folder;
  write_classes(folder / "small/train", 32, 0);
  write_classes(folder / "small/val", 32, 0);
  EXPECT_THAT(job_for(folder, folder / "small"),
              AllOf(HasSubstr("20 images 32x32x3, 2 classes"), HasSubstr("stem: cifar"),
                    HasSubstr("random_crop_padding: 4"), HasSubstr("/small/val'}"), HasSubstr("name: small")));
  write_classes(folder / "it's large", 80, 3);  // a name that YAML would not take as it is
  EXPECT_THAT(job_for(folder, folder / "it's large"),
              AllOf(HasSubstr("resnet50"), HasSubstr("size: 224"), HasSubstr("split: 10%")));
  write_classes(folder / "wide", 80, 0, 3);
  EXPECT_THAT(job_for(folder, folder / "wide"), AllOf(HasSubstr("20 images 80x240x3"), HasSubstr("size: [80, 240]")));
  write_classes(folder / "strips", 16, 0, 2);
  EXPECT_THAT(job_for(folder, folder / "strips"), AllOf(HasSubstr("20 images 16x32x3"), HasSubstr("stem: cifar")));
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "to be or not to be, that is the question\n";
  EXPECT_THAT(job_for(folder, folder.write("words.txt", text)), AllOf(HasSubstr("gpt"), HasSubstr("format: text")));
}

TEST(InitVerb, FindsTheRolesInATarAndImagesInAList) {
  const TemporaryFolder folder;
  write_classes(folder / "all/train", 32, 0);
  write_classes(folder / "all/test", 32, 0);
  const std::string tar = folder / "all.tar";
  ASSERT_EQ(std::system(("tar -cf " + tar + " -C " + (folder / "all") + " train test").c_str()), 0);
  EXPECT_THAT(job_for(folder, tar),
              AllOf(HasSubstr("prefix: 'train'"), HasSubstr("prefix: 'test'"), HasSubstr("2 classes")));
  std::string list = "image,label\n";
  for (const char* name : {"cat", "dog"})
    for (int i = 0; i < 10; ++i)
      list += std::string("all/train/") + name + "/" + std::to_string(i) + ".png," + name + "\n";
  EXPECT_THAT(job_for(folder, folder.write("list.csv", list)), AllOf(HasSubstr("format: csv"), HasSubstr("2 classes")));
}

TEST(InitVerb, ReadsListsAndRolesAsRunsDo) {
  const TemporaryFolder folder;
  write_classes(folder / "pics/Training", 32, 0);
  write_classes(folder / "pics/Testing", 32, 0);
  EXPECT_THAT(job_for(folder, folder / "pics"),
              AllOf(HasSubstr("/pics/Training'"), HasSubstr("/pics/Testing'}"), HasSubstr("2 classes")));
  std::string quoted = "\"\",\"file\",\"class\"\n", list;
  for (const char* name : {"cat", "dog"}) {
    for (int i = 0; i < 10; ++i) {
      const std::string image = std::string("pics/Training/") + name + "/" + std::to_string(i) + ".png";
      quoted += "\"0\",\"" + image + "\",\"" + name + "\"\n";
      list += (list.empty() ? "[" : ", ") + ("{\"image\": \"" + image + "\", \"label\": \"" + name + "\"}");
    }
  }
  EXPECT_THAT(job_for(folder, folder.write("quoted.csv", quoted)),
              AllOf(HasSubstr("format: csv"), HasSubstr("columns: {image: 'file', label: 'class'}")));
  EXPECT_THAT(job_for(folder, folder.write("list.json", list + "]")), HasSubstr("format: jsonl"));
  fs::create_directories(folder / "lists");
  folder.write("lists/train.json", list + "]");
  folder.write("lists/valid_set.json", list + "]");
  EXPECT_THAT(job_for(folder, folder / "lists"),
              AllOf(HasSubstr("/lists/train.json'"), HasSubstr("val: {path:"), HasSubstr("valid_set.json'}")));
  const std::string tar = folder / "pics.TAR";
  ASSERT_EQ(std::system(("tar -cf " + tar + " -C " + (folder / "pics") + " Training Testing").c_str()), 0);
  EXPECT_THAT(job_for(folder, tar), AllOf(HasSubstr("prefix: 'Training'"), HasSubstr("prefix: 'Testing'")));
}

TEST(InitVerb, SaysWhatItDoesNotKnowAndOverwritesNothing) {
  const TemporaryFolder folder;
  const std::string there = folder.write("job.yaml", "mine");
  EXPECT_EQ(gputrain({"init", folder / "nowhere", "--output", folder / "a.yaml"}).exit_code, 3);
  const Result table = gputrain({"init", folder.write("rows.csv", "a,b\n1,2\n"), "--output", folder / "a.yaml"});
  EXPECT_EQ(table.exit_code, 2);
  EXPECT_THAT(table.err, AllOf(HasSubstr("what is learned of these records is not known"), HasSubstr("init --list")));
  const Result exists = gputrain({"init", folder.write("t.txt", "text"), "--output", there});
  EXPECT_EQ(exists.exit_code, 2);
  EXPECT_EQ(read_file(there), "mine");
  fs::create_directories(folder / "pixels/images");
  fs::create_directories(folder / "pixels/masks");
  const Result masks = gputrain({"init", folder / "pixels", "--output", folder / "a.yaml"});
  EXPECT_EQ(masks.exit_code, 3);
  EXPECT_THAT(masks.err, HasSubstr("there are no masks"));
  fs::create_directories(folder / "empty");
  EXPECT_NE(gputrain({"init", folder / "empty", "--output", folder / "a.yaml"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder / "a.yaml"));
  EXPECT_FALSE(fs::exists(folder / "a.yaml.part"));
}

TEST(InitVerb, CountsTheClassesOfMasks) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::vector<uint8_t>& numbers) {
    for (int i = 0; i < 12; ++i) {
      const std::vector<uint8_t> image(32 * 32 * 3, static_cast<uint8_t>(20 * i));
      std::vector<uint8_t> mask(32 * 32);
      for (size_t at = 0; at < mask.size(); ++at) mask[at] = numbers[at % numbers.size()];
      for (const auto& [kind, pixels, channels] : {std::tuple("images", &image, 3), {"masks", &mask, 1}}) {
        fs::create_directories(folder / name + "/" + kind);
        std::ofstream(folder / name + "/" + kind + "/" + std::to_string(i) + ".png", std::ios::binary)
            << data::png_of({.pixels = pixels->data(), .width = 32, .height = 32, .channels = channels});
      }
    }
  };
  write("streets", {0, 2, 255, 3});
  EXPECT_THAT(job_for(folder, folder / "streets"),
              AllOf(HasSubstr("4 classes in 12 masks that were looked at: check that"), HasSubstr("num_classes: 4}"),
                    HasSubstr("format: segmentation"), HasSubstr("miou"), HasSubstr("channels: [16, 32, 64]"),
                    Not(HasSubstr("size: 256"))));
  write("cells", {0, 255});
  EXPECT_THAT(job_for(folder, folder / "cells"),
              AllOf(HasSubstr("black and white in 12 masks"), HasSubstr("values: [0, 255], ignore_index: null}")));
  write("plain", {0});
  EXPECT_EQ(gputrain({"init", folder / "plain", "--output", folder / "a.yaml"}).exit_code, 3);
}

TEST(InitVerb, OffersPublishedWeightsForFewImages) {
  const TemporaryFolder folder;
  write_classes(folder / "photos", 80, 3);
  const std::string job = folder / "job.yaml";
  const Result result = gputrain({"init", folder / "photos", "--output", job});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string advice = "gputrain fetch timm/resnet50.a1_in1k";
  EXPECT_THAT(result.out, HasSubstr(advice));
  EXPECT_THAT(read_file(job), HasSubstr(advice));
  EXPECT_EQ(gputrain({"validate", job}).exit_code, 0);
}

TEST(InitVerb, WritesRecipesThatAreInsideTheProgram) {
  const TemporaryFolder folder;
  const Result list = gputrain({"init", "--list"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(GPUTRAIN_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string name = entry.path().stem();
    EXPECT_THAT("\n" + list.out, HasSubstr("\n" + name));
    const std::string job = folder / name + ".yaml";
    ASSERT_EQ(gputrain({"init", "--recipe", name, "--output", job}).exit_code, 0);
    EXPECT_EQ(read_file(job), read_file(entry.path()));
    ++count;
  }
  EXPECT_GE(count, 5);
  EXPECT_THAT(list.out, HasSubstr("finetune_lora  "));
  EXPECT_EQ(gputrain({"init", "--recipe", "nothing"}).exit_code, 2);
  EXPECT_EQ(gputrain({"init"}).exit_code, 2);
  EXPECT_EQ(gputrain({"init", folder / "x", "--list"}).exit_code, 2);
  EXPECT_EQ(gputrain({"init", "--list", "--model", "a"}).exit_code, 2);
}

/// A small Llama with a tokenizer and a chat template, as transformers writes it.
class InitRecords : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "tokenizer");
    folder_.write("tokenizer/tokenizer.json", byte_tokenizer({"<|im_start|>", "<|im_end|>"}).dump());
    folder_.write("tokenizer/tokenizer_config.json", json{{"eos_token", "<|im_end|>"}}.dump());
    const std::string job = folder_.write(
        "base.yaml",
        "schema: 1\nmodel: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 4096, position: rotary, "
        "norm: rmsnorm, activation: swiglu}}\ndata: {train: {path: " +
            write("base",
                  [](int i) {
                    return json{{"text", std::to_string(i)}};
                  }) +
            ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + (folder_ / "tokenizer") +
            ", max_length: 16}}\ntrain: {max_steps: 1, global_batch_size: 2}\noptimizer: {type: sgd, lr: 0.1}\n");
    ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "base-run"}).exit_code, 0);
    ASSERT_EQ(gputrain({"export", folder_ / "base-run", base_, "--format", "hf"}).exit_code, 0);
  }

  /// Writes 40 records.
  template <class Make>
  std::string write(const std::string& name, const Make& make) const {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += make(i).dump() + "\n";
    return folder_.write(name + ".jsonl", lines);
  }
  /// The job for records, which a dry run must accept.
  std::string job(const std::string& data, std::vector<std::string> more = {}) const {
    const std::string job = folder_ / "job.yaml";
    fs::remove(job);
    more.insert(more.begin(), {"init", data, "--output", job});
    const Result result = gputrain(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Result dry =
        gputrain({"run", job, "--dry-run", "--output-dir", folder_ / "run", "--set", "train.micro_batch_size=1"});
    EXPECT_EQ(dry.exit_code, 0) << dry.out << dry.err << read_file(job);
    return read_file(job);
  }

  const TemporaryFolder folder_;
  const std::string base_ = folder_ / "llama";
};

TEST_F(InitRecords, BecomeJobsThatADryRunAccepts) {
  const std::vector<std::string> with_base{"--model", base_};
  const std::string chat = write("chat", [](int i) {
    return json{{"messages",
                 {{{"role", "user"}, {"content", "say it's " + std::to_string(i)}},
                  {{"role", "assistant"}, {"content", "a"}}}}};
  });
  EXPECT_THAT(job(chat, with_base),
              AllOf(HasSubstr("; conversations."), HasSubstr("type: lora"), HasSubstr("name: chat"),
                    HasSubstr("chat_template: chatml"), HasSubstr("loss_on: assistant"),
                    HasSubstr("messages: ['say it''s 0']"), Not(HasSubstr("quantize"))));
  EXPECT_THAT(job(chat, {"--model", base_, "--quantize", "nf4"}),
              AllOf(HasSubstr("quantize: {type: nf4}"), HasSubstr("activation_checkpointing: block")));
  const std::string answers = write("answers", [](int i) {
    return json{{"question", std::to_string(i)}, {"answer", "a"}};
  });
  EXPECT_THAT(job(answers, with_base), AllOf(HasSubstr("columns: {prompt: 'question', completion: 'answer'}"),
                                             HasSubstr("type: lora"), Not(HasSubstr("loss_on"))));
  const std::string pairs = write("pairs", [](int i) {
    return json{{"prompt", "p" + std::to_string(i)}, {"chosen", "a"}, {"rejected", "b"}};
  });
  EXPECT_THAT(job(pairs, with_base), AllOf(HasSubstr("type: dpo"), HasSubstr("type: lora")));
  EXPECT_THAT(job(pairs, {"--model", base_, "--quantize", "int8"}), HasSubstr("quantize: {type: int8}"));
  const std::string ratings = write("ratings", [](int i) {
    return json{{"prompt", "p" + std::to_string(i)}, {"completion", "a"}, {"label", i % 2 == 0}};
  });
  EXPECT_THAT(job(ratings, with_base), HasSubstr("type: kto"));
  const std::string texts = write("texts", [](int i) { return json{{"text", "the cat " + std::to_string(i)}}; });
  EXPECT_THAT(job(texts, with_base), HasSubstr("type: lora"));
  EXPECT_THAT(job(write("labels",
                        [](int i) {
                          return json{{"review", "text " + std::to_string(i)}, {"stars", i % 2}};
                        })),
              AllOf(HasSubstr("head: classifier"), HasSubstr("columns: {text: 'review', label: 'stars'}"),
                    HasSubstr("2 classes")));
  EXPECT_THAT(job(write("labels",
                        [](int i) {
                          return json{{"text", "text " + std::to_string(i)}, {"label", i % 2}};
                        }),
                  with_base),
              AllOf(HasSubstr("pretrained: "), HasSubstr("head: classifier"), HasSubstr("tokenizer: pretrained")));
  EXPECT_THAT(job(write("numbers",
                        [](int i) {
                          return json{{"text", "t " + std::to_string(i)}, {"label", i / 3.0}};
                        })),
              HasSubstr("type: regression"));
  EXPECT_THAT(job(write("tags",
                        [](int i) {
                          return json{{"tokens", {"a", std::to_string(i)}}, {"tags", {"O", "B-X"}}};
                        })),
              HasSubstr("head: tagger"));
}

TEST_F(InitRecords, SayWhatTheyNeed) {
  const std::string pairs = write("pairs", [](int i) {
    return json{{"anchor", std::to_string(i)}, {"positive", "a"}};
  });
  const std::string answers = write("answers", [](int i) {
    return json{{"prompt", std::to_string(i)}, {"completion", "a"}};
  });
  const std::string tags = write("tags", [](int i) { return json{{"tokens", {std::to_string(i)}}, {"tags", {"O"}}}; });
  const auto refusal = [&](const std::string& data, std::vector<std::string> more) {
    more.insert(more.begin(), {"init", data, "--output", folder_ / "none.yaml"});
    const Result result = gputrain(more);
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(refusal(answers, {}), AllOf(HasSubstr("prompts with completions"), HasSubstr("gputrain fetch ")));
  EXPECT_THAT(refusal(pairs, {"--model", base_}), HasSubstr("is a model of type gpt, but pairs of texts"));
  EXPECT_THAT(refusal(tags, {"--model", base_}), HasSubstr("need bert"));
  EXPECT_THAT(refusal(answers, {"--model", "nobody/nothing"}), HasSubstr("gputrain fetch nobody/nothing"));
  EXPECT_THAT(refusal(answers, {"--quantize", "nf4"}), HasSubstr("with --model"));
  EXPECT_THAT(refusal(answers, {"--model", base_, "--quantize", "int3"}), HasSubstr("int3"));
  EXPECT_FALSE(fs::exists(folder_ / "none.yaml"));
}

}  // namespace
}  // namespace gputrain::testing_support
