#include "gputrain/config/reference.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Catalogs, AreFoundThroughTheSchema) {
  std::vector<std::string> kinds;
  for (const AnyCatalog* catalog : catalogs_of(schema_of<SampleJob>())) kinds.push_back(catalog->kind());
  EXPECT_THAT(kinds, ElementsAre("model", "dataset", "optimizer"));
}

TEST(Catalogs, ListTheirEntriesByName) {
  EXPECT_EQ(list_text(sample_models(), 80), "gpt  decoder-only transformer\nmlp  multilayer perceptron\n");
}

TEST(Describe, ShowsTypesDefaultsUnitsAndHelp) {
  EXPECT_EQ(describe_text(sample_rules(), "sgd", 80),
            "optimizer sgd: stochastic gradient descent\n\n"
            "KEY       TYPE              DEFAULT  MEANING\n"
            "lr        number > 0        0.001    learning rate\n"
            "momentum  number in [0, 1)  0.0      fraction of the last update kept\n"
            "nesterov  true | false      false    Nesterov momentum\n");
  const std::string job = describe_text(schema_of<SampleJob>(), 200);
  EXPECT_THAT(job, HasSubstr("train.micro_batch_size  integer >= 1 | auto              auto          samples"));
  EXPECT_THAT(job, HasSubstr("optimizer.*             options"));
  EXPECT_THAT(job, HasSubstr("expect.val/METRIC       list of 2 numbers"));
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  for (size_t start = 0, end = 0; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    longest = std::max(longest, end - start);
  return longest;
}

TEST(Describe, FitsLinesToTheWidth) {
  for (const size_t width : std::vector<size_t>{50, 80, 120, 200}) {
    EXPECT_LE(longest_line(describe_text(schema_of<SampleJob>(), width)), width);
    EXPECT_LE(longest_line(describe_text(sample_rules(), "sgd", width)), width);
    EXPECT_LE(longest_line(list_text(sample_models(), width)), width);
  }
  EXPECT_EQ(list_text(sample_models(), 20), "gpt  decoder-only\n     transformer\nmlp  multilayer\n     perceptron\n");
}

TEST(Describe, PutsHelpBelowKeyWhenNarrow) {
  EXPECT_EQ(describe_text(sample_rules(), "sgd", 60),
            "optimizer sgd: stochastic gradient descent\n\n"
            "lr  number > 0  default 0.001\n    learning rate\n"
            "momentum  number in [0, 1)  default 0.0\n    fraction of the last update kept\n"
            "nesterov  true | false  default false\n    Nesterov momentum\n");
}

TEST(Describe, ShowsOnlyTheNamedKeyOrGroup) {
  const std::string group = describe_text(schema_of<SampleJob>(), 80, "train");
  EXPECT_THAT(group, HasSubstr("train.micro_batch_size"));
  EXPECT_THAT(group, ::testing::Not(HasSubstr("optimizer.")));
  EXPECT_EQ(describe_text(schema_of<SampleJob>(), 80, "trai"), "");
}

TEST(Describe, SuggestsNearestEntry) {
  try {
    describe_text(sample_rules(), "adam", 80);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'adamw'?"));
  }
}

TEST(SchemaFaults, AreNoneInSoundTable) { EXPECT_THAT(faults_of(schema_of<SampleJob>()), IsEmpty()); }

struct FaultySpec {
  int64_t low = 0;
  std::string text = "other";
  Choice rule{"no_such_rule"}, other{"sgd"};
  static void describe(Description<FaultySpec>& d) {
    d.key("low", &FaultySpec::low, "").at_least(1).aliases({"text"});
    d.key("text", &FaultySpec::text, "a text").choices({"one"}).range(0, 1);
    d.choice("lr", &FaultySpec::rule, sample_rules(), "collides with an option");
    d.choice("other", &FaultySpec::other, sample_rules(), "has options with the same names");
  }
};

TEST(SchemaFaults, AreFoundInFaultyTable) {
  EXPECT_THAT(faults_of(schema_of<FaultySpec>()),
              testing::UnorderedElementsAre(
                  HasSubstr("job.low: has no help"), HasSubstr("job.low: foreign name 'text' is a key beside it"),
                  HasSubstr("job.low: its default is refused: low must be at least 1, not 0"),
                  HasSubstr("job.text: has a range but is no number"),
                  HasSubstr("job.text: its default is refused: text must be one, not 'other'"),
                  HasSubstr("job.lr: the default 'no_such_rule' is not registered"),
                  HasSubstr("job.lr.sgd: its option 'lr' is also a key"), HasSubstr("job.lr.adamw: its option 'lr'"),
                  HasSubstr("job.lr: two choices of one group have their options beside them"),
                  HasSubstr("job.other: two choices of one group"), HasSubstr("job.other.sgd: its option 'lr'"),
                  HasSubstr("job.other.adamw: its option 'lr'")));
}

TEST(Description, RefusesSameKeyTwice) {
  Schema schema([] { return std::make_shared<SgdSpec>(); });
  Description<SgdSpec> description(schema);
  description.key("lr", &SgdSpec::lr, "once");
  EXPECT_THROW(description.key("lr", &SgdSpec::lr, "twice"), std::logic_error);
}

// The JSON schema and load() must accept and reject the same files. Python's jsonschema is the judge.

struct Verdict {
  const char* yaml;  // lines that are added to a valid job or replace its lines
  bool is_good;
};

const std::vector<Verdict>& verdicts() {
  static const std::vector<Verdict> all{
      {"", true},
      {"optimizer: {type: sgd, momentum: 0.5, nesterov: true}", true},
      {"optimizer: {lr: 0.1, betas: [0.5, 0.6]}", true},  // keys of the default entry
      {"optimizer: {momentum: 0.5}", false},
      {"optimizer: {type: adamw, momentum: 0.5}", false},
      {"optimizer: {type: adamww}", false},
      {"optimizer: {lr: 0}", false},
      {"optimizer: {lr: \"${seed}\"}", true},
      {"optimizer: {betas: [0.5]}", false},
      {"optimizer: {no_decay: [bias, nor]}", false},
      {"model: {type: gpt, config: {n_layer: 3}}", true},
      {"model: {type: gpt, config: {widths: [3]}}", false},
      {"model: {type: gpt, config: null}", true},
      {"model: {type: gpt, pretrained: null}", true},
      {"model: {pretrained: null}", false},
      {"model: gpt", false},
      {"data: {train: {path: x, format: text, unit: bytes}, val: {path: y, format: idx}}", true},
      {"data: {train: {path: x, format: text, invert: true}}", false},
      {"data: {train: {format: text}}", false},
      {"data: {train: {path: x}, num_workers: auto}", true},
      {"data: {train: {path: x}, num_workers: few}", false},
      {"data: {train: {path: x}, num_workers: 300}", false},
      {"train: {max_epochs: 3, warmup: 10%, max_time: 1h30m, ema: {decay: 0.9}}", true},
      {"train: {max_epochs: 3, warmup: 100, max_time: 90, ema: null}", true},
      {"train: {max_epochs: 3, warmup: 5 epochs}", false},
      {"train: {max_epochs: 3, warmup: 2Btok}", false},
      {"train: {max_epochs: 3, max_time: 1m1h}", false},
      {"train: {max_epochs: 3, max_time: soon}", false},
      {"train: []", false},
      {"optimizer:", true},
      {"data:", false},
      {"train: {max_epochs: 0}", false},
      {"train: {max_epochs: 1.5}", false},
      {"train: {max_epochs: null, max_steps: 3}", true},
      {"train: {max_epochs: 3, nonfinite: halt}", false},
      {"train: {max_epochs: 3, ema: 0.9}", false},
      {"train: {max_epochs: 3, maxepochs: 3}", false},
      {"name: 3", true},
      {"name: [3]", false},
      {"seed: abc", false},
      {"seed: -1", false},
      {"vars: {a: 1}", true},
      {"env: {A: 1, B: x}", true},
      {"env: {A: [1]}", false},
      {"expect: {val/loss: [1, 2], source: x}", true},
      {"expect: {val/loss: [1]}", false},
      {"expect: {loss: [1, 2]}", false},
      {"schema: 2", false},
      {"surprise: 3", false},
  };
  return all;
}

/// A valid job in which `line` replaces its group.
std::string job_with(const std::string& line) {
  std::string text;
  for (const char* good : {"model: {type: mlp}", "data: {train: {path: x}}", "train: {max_epochs: 3}"}) {
    const std::string key = std::string(good).substr(0, std::string(good).find(':') + 1);
    if (!line.starts_with(key)) text += std::string(good) + "\n";
  }
  return text + line + "\n";
}

TEST(JsonSchema, ChecksExamplesThatLoadJudgesAlike) {
  for (const Verdict& verdict : verdicts()) {
    const auto read = [&] { load(schema_of<SampleJob>(), {.text = job_with(verdict.yaml)}); };
    if (verdict.is_good) {
      EXPECT_NO_THROW(read()) << verdict.yaml;
    } else {
      EXPECT_THROW(read(), SpecError) << verdict.yaml;
    }
  }
}

/// A Python with jsonschema and yaml, or nothing.
std::string find_python() {
  const std::string own = std::string(GPUTRAIN_SOURCE_DIR) + "/.deps/bin/python";
  for (const std::string& python : {own, std::string("python3")}) {
    if (std::system((python + " -c 'import jsonschema, yaml' 2>/dev/null").c_str()) == 0) return python;
  }
  return {};
}

TEST(JsonSchema, AcceptsAndRefusesLikeLoad) {
  const std::string python = find_python();
  if (python.empty()) {
    if (std::getenv("CI") != nullptr) FAIL() << "no Python with jsonschema and yaml";
    GTEST_SKIP() << "no Python with jsonschema and yaml";
  }
  const fs::path folder = fs::temp_directory_path() / ("gputrain_schema_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "schema.json") << json_schema(schema_of<SampleJob>(), "sample").dump(2);
  size_t index = 0;
  for (const Verdict& verdict : verdicts()) {
    const std::string name = std::to_string(index++) + (verdict.is_good ? "_good.yaml" : "_bad.yaml");
    std::ofstream(folder / name) << job_with(verdict.yaml);
  }
  const std::string script = std::string(GPUTRAIN_SOURCE_DIR) + "/tests/config/json_schema_reference.py";
  EXPECT_EQ(std::system((python + " " + script + " " + folder.string()).c_str()), 0);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gputrain::config
