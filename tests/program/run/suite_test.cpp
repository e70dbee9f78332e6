// `gputrain eval --suite`: the numbers of lm-evaluation-harness, on any number of ranks.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/byte_tokenizer.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"
#include "support/rank_runs.hpp"
#include "support/small_job.hpp"

namespace gputrain::app {
namespace {

using namespace testing_support;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A value of JSON with what is expected of it: the same keys, and numbers that are nearly the same.
void expect_near(const json& found, const json& expected, const std::string& place) {
  if (expected.is_number()) {
    const double value = expected.get<double>();
    EXPECT_NEAR(found.get<double>(), value, 1e-5 * std::max(1.0, std::abs(value))) << place;
  } else if (expected.is_structured()) {
    ASSERT_EQ(found.size(), expected.size()) << place << found;
    for (const auto& [key, value] : expected.items()) {
      const json& other = expected.is_array() ? found.at(std::stoul(key)) : found.value(key, json());
      expect_near(other, value, place + "/" + key);
    }
  } else {
    EXPECT_EQ(found, expected) << place;
  }
}

json read_lines(const std::string& path) {
  json lines = json::array();
  std::istringstream stream(read_file(path));
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(EvaluationSuite, GivesNumbersOfHarnessOnAnyNumberOfRanks) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const TemporaryFolder folder;
  ASSERT_TRUE(gputrain::testing::run_reference("program/run/suite_reference.py", {folder.path()}));
  for (const char* name : {"llama", "gpt2"}) {
    const std::string model = folder / name, samples = folder / "samples.jsonl";
    const std::vector<std::string> words{
        "eval", model, "--suite", model + "/suite.jsonl", "--json", "--samples", samples, "--batch-size", "3"};
    const Result one = gputrain(words);
    ASSERT_EQ(one.exit_code, 0) << one.err;
    const json expected = json::parse(read_file(model + "/expected.json")), found = json::parse(one.out);
    expect_near(found["all"], expected["all"], "all");
    expect_near(found["tasks"], expected["tasks"], "tasks");
    const std::string of_one = read_file(samples);
    json lines = read_lines(samples);
    for (json& line : lines) {
      line.erase("line");
      line.erase("task");
    }
    expect_near(lines, expected["lines"], "lines");
    if (name != std::string("llama")) continue;
    std::filesystem::remove(samples);
    RankPrograms three = start_ranks(3, words);
    EXPECT_EQ(wait_for(three).out, one.out);
    EXPECT_EQ(read_file(samples), of_one);
    std::filesystem::remove(samples);
    std::vector<std::string> launch{"launch", "--nproc-per-node", "2"};
    launch.insert(launch.end(), words.begin(), words.end());
    EXPECT_EQ(gputrain(launch).out, one.out);
    EXPECT_EQ(read_file(samples), of_one);
  }
}

struct SuiteOfRun : ::testing::Test {
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    job = write_gpt_job(*folder, "", "{max_steps: 1, global_batch_size: 8}");
    ASSERT_EQ(gputrain({"run", job, "--output-dir", *folder / "run"}).exit_code, 0);
  }
  static void TearDownTestSuite() { folder.reset(); }

  Result evaluate(const std::string& lines, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"eval", *folder / "run", "--suite", folder->write("suite.jsonl", lines)};
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words);
  }

  static inline std::unique_ptr<TemporaryFolder> folder;
  static inline std::string job;
};

TEST_F(SuiteOfRun, PrintsTableForRunFolderOrJob) {
  const std::string lines =
      "{\"context\": \"ts\", \"choices\": [\"t\", \"s\"], \"answer\": 1, \"delimiter\": \"\", \"task\": \"letters\"}\n"
      "\n"
      "{\"prompt\": \"ts\", \"answer\": \"never\", \"max_new_tokens\": 4}\n";
  const Result result = evaluate(lines);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 lines of "), HasSubstr("task     metric       value  stderr  count\n"),
                                HasSubstr("\nletters  acc "), HasSubstr("\nall      acc "),
                                HasSubstr("exact_match      0              1\n")));
  const Result of_job = gputrain({"eval", job, "--output-dir", *folder / "run", "--suite", *folder / "suite.jsonl"});
  EXPECT_EQ(of_job.out.substr(of_job.out.find("task ")), result.out.substr(result.out.find("task ")));
}

TEST_F(SuiteOfRun, NamesLineThatIsWrong) {
  const auto error_of = [&](const std::string& line) {
    const Result result = evaluate("{\"prompt\": \"t\", \"answer\": \"s\", \"max_new_tokens\": 1}\n" + line + "\n");
    EXPECT_EQ(result.exit_code, 3) << line;
    EXPECT_THAT(result.err, HasSubstr("suite.jsonl:2: ")) << line;
    return result.err;
  };
  EXPECT_THAT(error_of("{\"question\": \"t\"}"), HasSubstr("none of the keys"));
  EXPECT_THAT(error_of("{\"prompt\": \"t\", \"answer\": \"s\", \"max_new_tokens\": 16}"), HasSubstr("leave no room"));
  EXPECT_THAT(error_of("{\"text\": \"ts\"}"), HasSubstr("no token that begins or ends a text"));
}

TEST_F(SuiteOfRun, ScoresChoicesThatJoinTheContext) {
  const TemporaryFolder joined;
  json tokenizer = byte_tokenizer({"<end>"});
  tokenizer["model"]["vocab"]["ab"] = 257;
  tokenizer["model"]["vocab"]["abc"] = 258;
  tokenizer["model"]["merges"] = json::array({"a b", "ab c"});
  joined.write("tokenizer.json", tokenizer.dump());
  joined.write("tokenizer_config.json", "{\"eos_token\": \"<end>\"}");
  const std::string from = joined / "run";
  const Result trained = gputrain({"run", job, "--output-dir", from, "--set", "data.text.tokenizer=published", "--set",
                                   "data.text.tokenizer_path=" + joined.path().string()});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto scores = [&](const std::string& context, const std::string& choices, const std::string& delimiter) {
    const std::string line = "{\"context\": \"" + context + "\", \"choices\": " + choices +
                             ", \"answer\": 0, \"delimiter\": \"" + delimiter + "\"}\n";
    const Result result =
        gputrain({"eval", from, "--suite", joined.write("suite.jsonl", line), "--samples", joined / "samples.jsonl"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_lines(joined / "samples.jsonl").at(0).at("loglikelihoods");
  };
  // "xa" + "b" are the tokens x, ab: as many as "xa" has. So "b" is encoded alone, as after a context that it does not
  // join.
  EXPECT_EQ(scores("xa", "[\"b\", \"d\"]", "").size(), 2U);
  EXPECT_EQ(scores("xa", "[\"bc\", \"d\"]", "").size(), 2U);
  EXPECT_EQ(scores("xa", "[\"b\", \"d\"]", "")[1], scores("xa", "[\"e\", \"d\"]", "")[1]);
}

TEST_F(SuiteOfRun, SaysWhatElseIsWrong) {
  EXPECT_EQ(evaluate("\n").exit_code, 3);
  const Result missing = gputrain({"eval", *folder / "run", "--suite", *folder / "none"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, HasSubstr("cannot open the file"));
  const std::string lines = folder->write("text.jsonl", "{\"text\": \"t\"}\n");
  const Result untrained = gputrain({"eval", job, "--output-dir", *folder / "new", "--suite", lines});
  EXPECT_EQ(untrained.exit_code, 3);
  EXPECT_THAT(untrained.err, HasSubstr("there are no trained weights"));
  EXPECT_EQ(evaluate("\n", {"--on", "val"}).exit_code, 2);
  EXPECT_EQ(gputrain({"eval", job, "--samples", "x"}).exit_code, 2);
}

}  // namespace
}  // namespace gputrain::app
