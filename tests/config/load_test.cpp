#include "gputrain/config/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_job.hpp"

namespace gputrain::config {
namespace {

Loaded load_text(const std::string& text, std::vector<std::string> set = {}) {
  return load(schema_of<SampleJob>(), {.file = "job.yaml", .text = text, .set = std::move(set)});
}

TEST(Load, FillsTheStruct) {
  const Loaded loaded = load_text(kGoodJob);
  const auto& job = loaded.as<SampleJob>();
  EXPECT_EQ(job.name, "small");
  EXPECT_EQ(job.seed, 1337);
  EXPECT_EQ(job.output_dir, "runs/small");
  EXPECT_EQ(job.model.architecture.name, "mlp");
  EXPECT_THAT(job.model.architecture.as<MlpSpec>().widths, testing::ElementsAre(32));
  EXPECT_TRUE(job.data.train.format.as<IdxSpec>().invert);
  EXPECT_EQ(job.train.max_epochs, 3);
  EXPECT_EQ(job.train.warmup, (Length{10, Length::Unit::percent}));
  EXPECT_EQ(job.train.micro_batch_size.value, 16);
  EXPECT_TRUE(job.data.num_workers.is_auto());
  EXPECT_EQ(job.optimizer.rule.as<SgdSpec>().lr, 0.1);
  EXPECT_THAT(job.expect->metrics.at("val/top1"), testing::ElementsAre(90, 95.5));
  EXPECT_EQ(job.env.at("N"), "1");
}

TEST(Load, InheritsTheFormatAndOptionsOfTheTrainingData) {
  const Loaded loaded = load_text(kGoodJob);
  const auto& val = *loaded.as<SampleJob>().data.val;
  EXPECT_EQ(val.path, "/data/val");
  EXPECT_EQ(val.format.name, "idx");
  EXPECT_TRUE(val.format.as<IdxSpec>().invert);
}

TEST(Load, PutsSetOverTheFile) {
  const Loaded loaded = load_text(kGoodJob, {"train.max_epochs=5", "optimizer.momentum=null", "seed=7"});
  EXPECT_EQ(loaded.as<SampleJob>().train.max_epochs, 5);
  EXPECT_EQ(loaded.as<SampleJob>().optimizer.rule.as<SgdSpec>().momentum, 0.0);
  EXPECT_EQ(loaded.origin("seed"), "--set seed");
  EXPECT_EQ(loaded.origin("train.warmup"), "job.yaml:4:32");
  EXPECT_EQ(loaded.origin("train.nonfinite"), "default");
}

TEST(Load, ReadsItsOwnResolvedYamlBackToTheSame) {
  const Loaded loaded = load_text(kGoodJob);
  const std::string yaml = loaded.resolved_yaml();
  const Loaded again = load_text(yaml);
  EXPECT_EQ(again.resolved_yaml(), yaml);
  EXPECT_EQ(again.settings(), loaded.settings());
}

}  // namespace
}  // namespace gputrain::config
