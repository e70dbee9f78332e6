#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Layers : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / ("gputrain_layers_" + std::to_string(::getpid()) + "_" + name);
    fs::create_directories(folder_ / "base");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  Loaded load_with(std::vector<std::string> set = {}) const {
    return load(schema_of<SampleJob>(), {.file = folder_ / "job.yaml", .set = std::move(set)});
  }
  std::string refusal(std::vector<std::string> set = {}) const {
    try {
      load_with(std::move(set));
      return "accepted";
    } catch (const SpecError& error) {
      return error.what();
    }
  }

  fs::path folder_;
};

constexpr const char* kBase = R"(
model: {type: mlp, config: {widths: [1, 2, 3], dropout: 0.5}}
data: {train: {path: /data, format: idx}}
train: {max_epochs: 3, ema: {decay: 0.9}}
optimizer: {type: sgd, lr: 0.5, momentum: 0.9}
)";

TEST_F(Layers, MergeIncludesThenFileThenSet) {
  write("base/a.yaml", std::string(kBase) + "seed: 1\nname: a\nprecision: bf16\n");
  write("base/b.yaml", "seed: 2\nname: b\n");
  write("job.yaml", "include: [base/a.yaml, base/b.yaml]\nseed: 3\ntrain: {max_epochs: 4}\n");
  const Loaded loaded = load_with({"train.max_epochs=5", "train.max_epochs=6"});
  const auto& job = loaded.as<SampleJob>();
  EXPECT_EQ(job.precision, "bf16");
  EXPECT_EQ(job.name, "b");
  EXPECT_EQ(job.seed, 3);
  EXPECT_EQ(job.train.max_epochs, 6);
  EXPECT_EQ(job.train.ema->decay, 0.9);  // maps merge key by key
}

TEST_F(Layers, FindIncludesBesideTheNamingFile) {
  write("base/a.yaml", "include: b.yaml\n");
  write("base/b.yaml", std::string(kBase) + "name: found\n");
  write("job.yaml", "include: base/a.yaml\n");
  EXPECT_EQ(load_with().as<SampleJob>().name, "found");
  EXPECT_EQ(load_with().origin("name"), (folder_ / "base/b.yaml").string() + ":6:7");
}

TEST_F(Layers, ReplaceListsAsAWhole) {
  write("base/a.yaml", kBase);
  write("job.yaml", "include: base/a.yaml\nmodel: {config: {widths: [9]}}\n");
  EXPECT_THAT(load_with().as<SampleJob>().model.architecture.as<MlpSpec>().widths, ElementsAre(9));
}

TEST_F(Layers, RemoveKeysWithNull) {
  write("base/a.yaml", std::string(kBase) + "seed: 1\nenv: {A: x, B: y}\nnonsense: 3\n");
  write("job.yaml", "include: base/a.yaml\nseed: null\nnonsense: null\nenv: {A: null}\ntrain: {ema: null}\n");
  const Loaded loaded = load_with({"optimizer.momentum=null", "model.config=null"});
  const auto& job = loaded.as<SampleJob>();
  EXPECT_EQ(job.seed, 1337);
  EXPECT_FALSE(job.train.ema.has_value());
  EXPECT_EQ(job.env.size(), 1u);
  EXPECT_EQ(job.optimizer.rule.as<SgdSpec>().momentum, 0.0);
  EXPECT_THAT(job.model.architecture.as<MlpSpec>().widths, ElementsAre(128, 64));
}

TEST_F(Layers, RefuseNullWithNothingToRemove) {
  write("job.yaml", std::string(kBase) + "seed: null\n");
  EXPECT_THAT(refusal(), HasSubstr("seed must be a whole number, but has no value"));
}

TEST_F(Layers, ReportRemovedRequiredKey) {
  write("job.yaml", kBase);
  EXPECT_THAT(refusal({"data.train.path=null"}),
              HasSubstr("--set data.train.path: the key 'data.train.path' is missing"));
}

TEST_F(Layers, ExplainOptionOfAnotherChoice) {
  write("base/a.yaml", kBase);
  write("job.yaml", "include: base/a.yaml\noptimizer: {type: adamw}\n");
  EXPECT_THAT(refusal(),
              testing::AllOf(HasSubstr("base/a.yaml:5:33: 'momentum' is an option of the optimizer 'sgd'"),
                             HasSubstr("write `momentum: null`, or `!replace` before the keys of 'optimizer'")));
  EXPECT_EQ(load_with({"optimizer.momentum=null"}).as<SampleJob>().optimizer.rule.name, "adamw");
}

TEST_F(Layers, ReplaceAGroupWhole) {
  write("base/a.yaml", kBase);
  write("job.yaml", "include: base/a.yaml\noptimizer: !replace\n  type: adamw\nmodel: !replace {type: mlp}\n");
  const Loaded loaded = load_with();
  EXPECT_EQ(loaded.as<SampleJob>().optimizer.rule.name, "adamw");
  EXPECT_EQ(loaded.as<SampleJob>().model.architecture.as<MlpSpec>().widths, MlpSpec{}.widths);
  EXPECT_THAT(loaded.resolved_yaml(true),
              testing::AllOf(HasSubstr("type: adamw  # " + (folder_ / "job.yaml").string() + ":3:9"),
                             HasSubstr("dropout: 0.0  # default")));
  // Also in a file between, by --set, and inside a group.
  write("base/mid.yaml", "include: a.yaml\ntrain: !replace {max_epochs: 7}\n");
  write("job.yaml", "include: base/mid.yaml\nmodel: {config: !replace {dropout: 0.25}}\n");
  const Loaded other = load_with({"optimizer=!replace {type: adamw}"});
  EXPECT_FALSE(other.as<SampleJob>().train.ema.has_value());
  EXPECT_EQ(other.as<SampleJob>().train.max_epochs, 7);
  EXPECT_EQ(other.as<SampleJob>().model.architecture.as<MlpSpec>().widths, MlpSpec{}.widths);
  EXPECT_EQ(other.as<SampleJob>().optimizer.rule.name, "adamw");
}

TEST_F(Layers, ReplaceOnlyGroups) {
  write("job.yaml", "seed: !replace 3\n");
  EXPECT_THAT(refusal(), HasSubstr("!replace is for a group of keys"));
  write("job.yaml", "data: {train: [!replace {path: x}]}\n");
  EXPECT_THAT(refusal(), HasSubstr("!replace is for a group of keys"));
  write("job.yaml", "!replace\nseed: 3\n");
  EXPECT_THAT(refusal(), HasSubstr("this is a whole job"));
  write("job.yaml", "model: !replce {type: mlp}\n");
  EXPECT_THAT(refusal(), HasSubstr("the tag '!replce' is not supported"));
}

TEST_F(Layers, ReportAMissingFileBesideAllOtherMistakes) {
  write(
      "job.yaml",
      "include: base/absent.yaml\nsed: 3\ntrain: {max_epoch: 1}\noptimizer: {momentum: 0.9}\nname: \"${of_absent}\"\n");
  const std::string page = refusal({"precision=fp17", "seed"});
  for (const char* told :
       {"5 mistakes", "absent.yaml", "did you mean 'seed'?", "did you mean 'max_epochs'?", "fp17", "--set seed"})
    EXPECT_THAT(page, HasSubstr(told));
  // What the absent file may say is no mistake: the model, the optimizer's type, the value of a name.
  for (const char* unknown : {"is missing", "momentum' is", "of_absent}'"})
    EXPECT_THAT(page, testing::Not(HasSubstr(unknown)));
}

TEST_F(Layers, ReadSetAsYaml) {
  write("job.yaml", kBase);
  const Loaded loaded = load_with({"name=a b", "model.config.widths=[4, 5]", "train={max_steps: 7}", "env.X=\"1\"",
                                   "expect.val/top1=[1, 2]", "data.train.path=a=b", "train.warmup=2ep"});
  const auto& job = loaded.as<SampleJob>();
  EXPECT_EQ(job.name, "a b");
  EXPECT_THAT(job.model.architecture.as<MlpSpec>().widths, ElementsAre(4, 5));
  EXPECT_EQ(job.train.max_steps, 7);
  EXPECT_EQ(job.train.max_epochs, 3);
  EXPECT_EQ(job.env.at("X"), "1");
  EXPECT_THAT(job.expect->metrics.at("val/top1"), ElementsAre(1, 2));
  EXPECT_EQ(job.data.train.path, "a=b");
}

TEST_F(Layers, NameTheWrongSet) {
  write("job.yaml", kBase);
  const std::string page = refusal({"seed", "precision=", "=3", "a..b=1", "name=[1", "include=x.yaml"});
  EXPECT_THAT(page, HasSubstr("--set seed: there is no value"));
  EXPECT_THAT(page, HasSubstr("--set precision: there is no value after the '='"));
  EXPECT_THAT(page, HasSubstr("--set : the key is not of the form a.b.c"));
  EXPECT_THAT(page, HasSubstr("--set a..b: the key is not of the form a.b.c"));
  EXPECT_THAT(page, HasSubstr("--set name: this '[' is not closed"));
  EXPECT_THAT(page, HasSubstr("--set include: `include` belongs in a file"));
  EXPECT_THAT(refusal({"lr=3"}), HasSubstr("write `--set optimizer.lr=3`"));
}

TEST_F(Layers, WorkWithSetAlone) {
  const Loaded loaded =
      load(schema_of<SampleJob>(), {.set = {"model.type=mlp", "data.train.path=x", "train.max_steps=1"}});
  EXPECT_EQ(loaded.as<SampleJob>().data.train.path, "x");
}

TEST_F(Layers, ShareValuesByAnchorsAndMergeKeys) {
  write("job.yaml", R"(
vars: {unused: &one 1}
model: {type: mlp}
data:
  train: &train {path: /train, format: idx, invert: true}
  val: {<<: *train, path: /val}
train: {max_steps: *one}
)");
  const Loaded loaded = load_with();
  EXPECT_EQ(loaded.as<SampleJob>().data.val->path, "/val");
  EXPECT_TRUE(loaded.as<SampleJob>().data.val->format.as<IdxSpec>().invert);
  EXPECT_EQ(loaded.as<SampleJob>().train.max_steps, 1);
}

}  // namespace
}  // namespace gputrain::config
