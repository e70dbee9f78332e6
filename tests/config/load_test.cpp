#include "gputrain/config/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_job.hpp"

namespace gputrain::config {
namespace {

Loaded load_text(const std::string& text, std::vector<std::string> set = {}) {
  return load(schema_of<SampleJob>(), {.file = "job.yaml", .text = text, .set = std::move(set)});
}

struct EnvironmentOnly {
  std::map<std::string, std::string> env;
  static void describe(Description<EnvironmentOnly>& d) { d.key("env", &EnvironmentOnly::env, "variables"); }
};

struct Named {
  std::string name = "nobody";
};
struct PartOfAJob : Named {
  int64_t seed = 7;
  EnvironmentOnly inner;
  static void describe(Description<PartOfAJob>& d) {
    d.is_a_part();
    d.key("name", &PartOfAJob::name, "of the base");
    d.key("seed", &PartOfAJob::seed, "own").at_least(0);
    d.key("inner", &PartOfAJob::inner, "a group that is whole");
  }
};

TEST(Load, SkipsKeysOfOtherParts) {
  const auto load_part = [](const std::string& text) {
    return load(schema_of<PartOfAJob>(), {.file = "job.yaml", .text = text}).as<PartOfAJob>();
  };
  const PartOfAJob part = load_part("other: {deep: [1]}\nname: ${other_name}\nother_name: it\ninner: {env: {A: b}}\n");
  EXPECT_EQ(part.name, "it");
  EXPECT_EQ(part.seed, 7);
  EXPECT_EQ(part.inner.env.at("A"), "b");
  EXPECT_THROW(load_part("other: 1\nseed: -1\n"), SpecError);
  EXPECT_THROW(load_part("inner: {environment: {}}\n"), SpecError);
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

TEST(Load, InheritsFormatOfTrainingData) {
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

TEST(Load, ReadsItsResolvedYamlBack) {
  const Loaded loaded = load_text(kGoodJob);
  const std::string yaml = loaded.resolved_yaml();
  const Loaded again = load_text(yaml);
  EXPECT_EQ(again.resolved_yaml(), yaml);
  EXPECT_EQ(again.settings(), loaded.settings());
}

TEST(Load, WritesResolvedJobInDeclaredOrder) {
  EXPECT_EQ(load_text(kGoodJob).resolved_yaml(),
            R"(schema: 1
name: small
seed: 1337
output_dir: runs/small
precision: fp32
model:
  type: mlp
  config:
    widths: [32]
    dropout: 0.1
  pretrained: null
data:
  train:
    path: /data
    format: idx
    invert: true
  val:
    path: /data/val
    format: idx
    invert: true
  num_workers: auto
train:
  max_epochs: 3
  max_steps: null
  max_time: null
  micro_batch_size: 16
  warmup: 10%
  label_smoothing: 0.0
  ema: null
  nonfinite: stop
optimizer:
  type: sgd
  lr: 0.1
  momentum: 0.9
  nesterov: false
  no_decay: [bias, norm]
env:
  "N": "1"
  NCCL_DEBUG: WARN
expect:
  source: a table
  val/top1: [90.0, 95.5]
)");
}

TEST(Load, ShowsWhereEachValueComesFrom) {
  const std::string yaml = load_text(kGoodJob, {"seed=7"}).resolved_yaml(true);
  EXPECT_THAT(yaml, testing::HasSubstr("seed: 7  # --set seed\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("    widths: [32]  # job.yaml:2:37\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("  nonfinite: stop  # default\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("    format: idx  # job.yaml:3:37\n"));
}

TEST(Load, QuotesTextsThatOldReadersMisread) {
  for (const char* text :
       {"yes", "No", "on",  "OFF",  "y",    "null", "~",  "1_000", "0x1f", "012", "12:30", "2024-01-01",
        "1e5", ".5", "- a", "a: b", "a #b", "",     " a", "a ",    "@a",   "*a",  "<<",    "="}) {
    EnvironmentOnly spec;
    spec.env["key"] = text;
    EXPECT_EQ(to_yaml(schema_of<EnvironmentOnly>(), &spec), "env:\n  key: \"" + std::string(text) + "\"\n");
  }
  for (const char* text : {"a", "runs/small", "a b", "/data/x.bin", "rand-m9-mstd0.5", "cross_entropy", "_x"}) {
    EnvironmentOnly spec;
    spec.env["key"] = text;
    EXPECT_EQ(to_yaml(schema_of<EnvironmentOnly>(), &spec), "env:\n  key: " + std::string(text) + "\n");
  }
}

std::string setting_of(const std::vector<Setting>& settings, const std::string& key) {
  for (const Setting& setting : settings) {
    if (setting.key == key) return setting.value;
  }
  return "absent";
}

TEST(Settings, ListLeavesWithTheirChangeClass) {
  const std::vector<Setting> settings = load_text(kGoodJob).settings();
  EXPECT_EQ(setting_of(settings, "optimizer.no_decay"), "[bias, norm]");
  EXPECT_EQ(setting_of(settings, "train.ema"), "null");
  EXPECT_EQ(setting_of(settings, "env.N"), "\"1\"");
  EXPECT_EQ(setting_of(settings, "model.config.dropout"), "0.1");
  EXPECT_THAT(settings, testing::Contains(Setting{"seed", "1337", Change::refused}));
  EXPECT_THAT(settings, testing::Contains(Setting{"train.max_epochs", "3", Change::safe}));
  EXPECT_THAT(settings, testing::Contains(Setting{"expect.source", "a table", Change::safe}));  // like its group
  EXPECT_THAT(settings, testing::Contains(Setting{"env.N", "\"1\"", Change::safe}));
}

TEST(Settings, IdentifyJobWithoutSafeOnes) {
  const auto identity_with = [](std::vector<std::string> set) { return identity(load_text(kGoodJob, set).settings()); };
  EXPECT_EQ(identity_with({}), identity_with({"train.max_epochs=9", "name=other", "env.X=1", "expect=null"}));
  EXPECT_NE(identity_with({}), identity_with({"seed=2"}));
  EXPECT_THAT(identity_with({}), testing::HasSubstr("optimizer.lr: 0.1\n"));
}

TEST(Settings, NameDifferencesWithBothValues) {
  const auto before = load_text(kGoodJob).settings();
  const auto after = load_text(kGoodJob, {"seed=2", "train.ema={decay: 0.5}", "env.N=null"}).settings();
  std::vector<std::string> texts;
  for (const Difference& one : differences(before, after)) {
    texts.push_back(one.key + ": " + one.before + " -> " + one.after + (one.change == Change::safe ? " (safe)" : ""));
  }
  EXPECT_THAT(texts, testing::UnorderedElementsAre("seed: 1337 -> 2", "train.ema.decay:  -> 0.5", "train.ema: null -> ",
                                                   "env.N: \"1\" ->  (safe)"));
  EXPECT_THAT(differences(before, before), testing::IsEmpty());
}

TEST(Loaded, PlacesErrorFoundByLaterCode) {
  const Loaded loaded = load_text(kGoodJob, {"seed=7"});
  const SpecError error = loaded.error("train.micro_batch_size", "16 does not divide 100", "write `20`");
  EXPECT_STREQ(error.what(),
               "1 mistake in job.yaml\n\n"
               "job.yaml:4:55: train.micro_batch_size: 16 does not divide 100\n"
               "   4 | train: {max_epochs: 3, warmup: 10%, micro_batch_size: 16}\n"
               "     |                                                       ^^\n"
               "     = write `20`");
  EXPECT_THAT(loaded.error("seed", "is odd").what(), testing::HasSubstr("--set seed: is odd"));
  EXPECT_THAT(loaded.error("data.num_workers", "too many").what(), testing::EndsWith("\n\ndata.num_workers: too many"));
  SpecIssues issues;
  issues.add("seed", "is odd");
  issues.add("data.num_workers", "too many");
  issues.add("train", "too long");
  EXPECT_THAT(loaded.error(issues).what(), testing::AllOf(testing::StartsWith("3 mistakes in job.yaml and --set\n"),
                                                          testing::HasSubstr("\n\ndata.num_workers: too"),
                                                          testing::HasSubstr("job.yaml:4:1: train: too long\n"),
                                                          testing::HasSubstr("--set seed: is")));
}

TEST(Loaded, NamesFileOfAFoundSetting) {
  const Loaded loaded =
      load(schema_of<SampleJob>(),
           {.file = "job.yaml", .text = kGoodJob, .found = {.file = "base/config.json", .set = {"seed=7"}}});
  EXPECT_THAT(loaded.error("seed", "is odd").what(), testing::StartsWith("1 mistake in base/config.json\n"));
}

TEST(Loaded, PlacesGroupWhereItIsFirstWritten) {
  const auto said_of = [](const std::string& key, const Loaded& loaded) {
    return std::string(loaded.error(key, "is wrong").what());
  };
  EXPECT_THAT(said_of("train", load_text(kGoodJob, {"train.warmup=5%"})),
              testing::HasSubstr("\n\njob.yaml:4:1: train: is wrong\n"));
  EXPECT_THAT(said_of("train.ema", load_text(kGoodJob, {"train.ema.decay=0.5"})),
              testing::StartsWith("1 mistake in --set\n\n--set train.ema.decay: train.ema: is wrong"));
}

TEST(Loaded, RefusesAnotherStructType) {
  EXPECT_THROW(static_cast<void>(load_text(kGoodJob).as<SgdSpec>()), std::logic_error);
}

TEST(UnknownKeys, SuggestNearestName) {
  const auto hint_for = [](const std::string& set) {
    try {
      load_text(kGoodJob, {set});
      return std::string("accepted");
    } catch (const SpecError& error) {
      return error.problems().front().hint;
    }
  };
  EXPECT_EQ(hint_for("sede=3"), "did you mean 'seed'?");  // a swap of two letters counts as one change
  EXPECT_EQ(hint_for("outputDir=x"), "did you mean 'output_dir'?");
  EXPECT_EQ(hint_for("train.LABEL-SMOOTHING=0"), "did you mean 'label_smoothing'?");
  EXPECT_EQ(hint_for("learningrate=0.1"), "did you mean 'optimizer.lr'?");  // similar to another tool's key
  EXPECT_EQ(hint_for("data.sede=1"), "did you mean 'seed'?");
  EXPECT_EQ(hint_for("optimizer.zzz=1"), "the keys here are lr, momentum, nesterov, no_decay or type");
}

TEST(SpecError, UsesColorOnlyWhenAsked) {
  try {
    load_text("sed: 3\n");
    FAIL();
  } catch (const SpecError& error) {
    EXPECT_EQ(error.render(false).find('\x1b'), std::string::npos);
    EXPECT_EQ(error.render(false), error.what());
    EXPECT_NE(error.render(true).find("\x1b[31m^^^\x1b[0m"), std::string::npos);
  }
}

}  // namespace
}  // namespace gputrain::config
