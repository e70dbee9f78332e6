// Interrupted and uninterrupted runs end equal bit for bit, for every model family and every precision of a CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

struct Family {
  std::string name;
  std::string job;  // everything except data
  bool is_text = false, has_masks = false;
};

const std::vector<Family> kFamilies{
    {"mlp",
     "model: {type: mlp, config: {hidden: [24], dropout: 0.2}}\noptimizer: {type: sgd, lr: 0.05, momentum: 0.9}\n"},
    {"convnet",
     "model: {type: convnet, config: {channels: [4, 6], batch_norm: true, dropout: 0.2}}\n"
     "optimizer: {type: adamw, lr: 3e-3}\n"},
    {"resnet18",
     "model: {type: resnet18, config: {stem: cifar}}\noptimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: "
     "true}\n"},
    {"vit",
     "model: {type: vit, config: {patch_size: 4, n_layer: 2, n_head: 2, n_embd: 32, dropout: 0.1, drop_path: 0.2}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n"},
    {"convnext",
     "model: {type: convnext, config: {blocks: [1, 1], channels: [16, 24], drop_path: 0.2}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n"},
    {"unet", "model: {type: unet, config: {channels: [6, 8, 12]}}\noptimizer: {type: adamw, lr: 3e-3}\n", false, true},
    {"gpt2",  // wide enough that oneDNN computes its dense layers where it is faster
     "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 96, block_size: 16, dropout: 0.1}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n",
     true},
    {"llama",
     "model: {type: gpt, config: {n_layer: 1, n_head: 4, n_kv_head: 2, n_embd: 32, block_size: 16, position: rotary, "
     "norm: rmsnorm, activation: swiglu, bias: false}}\n"
     "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n",
     true}};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

/// 90 images of 8 x 8 in MNIST's format; a higher class is brighter.
std::string write_images(const TemporaryFolder& folder) {
  std::mt19937 draw(3);
  std::string images = big_endian(0x803) + big_endian(90) + big_endian(8) + big_endian(8);
  std::string labels = big_endian(0x801) + big_endian(90);
  for (uint32_t i = 0; i < 90; ++i) {
    labels += static_cast<char>(i % 4);
    for (int pixel = 0; pixel < 64; ++pixel) images += static_cast<char>(40 * (i % 4) + draw() % 90);
  }
  folder.write("data/train-images-idx3-ubyte", images);
  folder.write("data/train-labels-idx1-ubyte", labels);
  return folder / "data";
}

struct Case {
  Family family;
  std::string precision;
  int workers;

  std::string name() const { return family.name + "_" + precision + "_" + std::to_string(workers) + "workers"; }
  friend void PrintTo(const Case& it, std::ostream* to) { *to << it.name(); }
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Family& family : kFamilies) {
    for (const std::string precision : {"fp32", "bf16", "fp16", "fp64"}) {
      for (const int workers : {0, 4}) list.push_back({family, precision, workers});
    }
  }
  return list;
}

class ResumeOfFamilies : public ::testing::TestWithParam<Case> {
 protected:
  std::string write_job() const {
    const auto& [family, precision, workers] = GetParam();
    const std::string data =
        family.is_text     ? "{train: {path: " + write_text(folder_) + ", format: text}, val: {split: 10%}"
        : family.has_masks ? "{train: {format: synthetic, samples: 90}, val: {split: 20%}, image: {size: 10}"
                           : "{train: {path: " + write_images(folder_) +
                                 ", format: idx}, image: {augment: {random_crop_padding: 1, hflip: 0.5}}";
    return folder_.write("job.yaml",
                         "schema: 1\nprecision: " + precision + "\n" + family.job + "data: " + data +
                             ", num_workers: " + std::to_string(workers) + "}\n" +
                             "train: {max_steps: 60, global_batch_size: 8, micro_batch_size: 3, max_grad_norm: 1.0}\n"
                             "lr_scheduler: {type: cosine, warmup: 4}\n"
                             "log: {interval: 1}\ncheckpoint: {interval: 7}\n");
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Families, ResumeOfFamilies, ::testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name(); });

TEST_P(ResumeOfFamilies, MatchesUninterruptedBitForBit) {
  const std::string job = write_job();
  const auto run = [&](const std::string& name) {
    return std::vector<std::string>{gputrain_path(), "run", job, "--output-dir", folder_ / name};
  };
  const Result whole = Program(run("whole")).wait();
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  std::mt19937 draw(11);
  for (const int first : {1, 20, 38}) {  // killed or asked to stop at some step after this
    Program attempt(run("parts"));
    ASSERT_TRUE(attempt.prints("step    " + std::to_string(first + static_cast<int>(draw() % 15)) + "/"));
    attempt.signal(std::vector<int>{SIGKILL, SIGTERM, SIGUSR1}[draw() % 3]);
    ASSERT_NE(attempt.wait().exit_code, 0);
  }
  const Result last = Program(run("parts")).wait();
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, ::testing::HasSubstr("attempt "));
  EXPECT_EQ(read_file(folder_ / "whole/model.safetensors"), read_file(folder_ / "parts/model.safetensors"));
  for (const std::string file : {"model", "optimizer", "generators"}) {
    const std::string path = "/ckpt/step-00000060/" + file + ".safetensors";
    EXPECT_EQ(read_file(folder_ / ("whole" + path)), read_file(folder_ / ("parts" + path))) << file;
  }
  EXPECT_EQ(timeless_metrics(folder_ / "whole/metrics.jsonl"), timeless_metrics(folder_ / "parts/metrics.jsonl"));
}

}  // namespace
}  // namespace gputrain::testing_support
