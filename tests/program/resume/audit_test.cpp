// What the ledger proves about the samples of a run that was interrupted many times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "datasets/tiny_images.hpp"
#include "support/program.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

nlohmann::json audit(const std::string& run, int expected_code) {
  const Result result = gputrain({"data", "audit", run, "--json"});
  EXPECT_EQ(result.exit_code, expected_code) << result.out << result.err;
  return nlohmann::json::parse(result.out);
}

/// Applies `change` to every line of a ledger.
void rewrite(const std::string& path, const std::function<void(nlohmann::json&)>& change) {
  std::istringstream lines(read_file(path));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    auto object = nlohmann::json::parse(line);
    change(object);
    text += object.dump() + "\n";
  }
  std::ofstream(path, std::ios::trunc) << text;
}

/// Text for hundreds of steps per epoch, with a batch size that does not divide it.
std::string write_long_job(const TemporaryFolder& folder) {
  return write_gpt_job(folder, "log: {interval: 20}\neval: {interval: null}\ncheckpoint: {interval: 25}\n");
}

TEST(DataAudit, FindsEverySampleOnceAfterInterruptions) {
  const TemporaryFolder folder;
  const std::string job = write_long_job(folder);
  const std::vector<std::string> run{"run",          job,
                                     "--output-dir", folder / "run",
                                     "--set",        "train.max_steps=null",
                                     "--set",        "train.max_epochs=3",
                                     "--set",        "train.global_batch_size=3"};
  std::mt19937 draw(7);
  int interruptions = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.begin(), gputrain_path());
    Program program(arguments);
    program.prints("step    ");
    // A random moment. Not extended by patience(), because most runs would end before.
    program.prints("never printed", 0.001 * static_cast<double>(draw() % 40) / gputrain::testing::patience(1.0));
    program.signal(std::vector<int>{SIGKILL, SIGTERM, SIGINT, SIGUSR1}[draw() % 4]);
    interruptions += program.wait().exit_code != 0 ? 1 : 0;
  }
  EXPECT_GE(interruptions, 10);
  ASSERT_EQ(gputrain(run).exit_code, 0);
  const auto result = audit(folder / "run", 0);
  EXPECT_TRUE(result["ok"]) << result.dump(2);
  EXPECT_EQ(result["epochs"], 3);
  EXPECT_TRUE(result["problems"].empty());
  EXPECT_THAT(gputrain({"data", "audit", folder / "run"}).out, HasSubstr("exactly once per epoch"));
}

class AuditFindings : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(
        gputrain({"run", write_long_job(folder_), "--output-dir", folder_ / "run", "--set", "train.max_steps=100"})
            .exit_code,
        0);
    ASSERT_TRUE(audit(folder_ / "run", 0)["ok"]);
  }
  /// The finding of the audit if the ledger claims `samples` additional samples from step 75 on.
  std::string finding(int64_t samples) {
    rewrite(folder_ / "run/ledger.jsonl", [&](nlohmann::json& line) {
      if (line["step"].get<int64_t>() < 75) return;
      line["data"]["samples"] = line["data"]["samples"].get<int64_t>() + samples;
      line["data"]["fingerprint"] = "0123456789abcdef";
    });
    const auto result = audit(folder_ / "run", 4);
    EXPECT_FALSE(result["problems"].empty());  // the hash chain is broken too
    EXPECT_EQ(result["findings"][0]["begin"], 50);
    EXPECT_EQ(result["findings"][0]["end"], 75);
    return result["findings"][0]["what"];
  }
  TemporaryFolder folder_;
};

TEST_F(AuditFindings, ReportsDuplicateSamples) { EXPECT_EQ(finding(2), "2 samples used more than once"); }
TEST_F(AuditFindings, ReportsMissingSamples) { EXPECT_EQ(finding(-3), "3 samples left out"); }
TEST_F(AuditFindings, ReportsExchangedSamples) { EXPECT_EQ(finding(0), "as many samples as expected, but not those"); }

TEST(DataAudit, CountsAttemptsKilledBeforeSaving) {
  const TemporaryFolder folder;
  const std::string job = write_long_job(folder);
  const auto start = [&](const std::string& run, const std::string& interval) {
    return Program({gputrain_path(), "run", job, "--output-dir", folder / run, "--set", "train.max_steps=1000000",
                    "--set", "checkpoint.interval=" + interval});
  };
  for (const std::string number : {"", "  attempt 2", "  attempt 3"}) {
    Program killed = start("run", "null");
    ASSERT_TRUE(killed.prints("resume  none found in " + folder / "run/ckpt" + "  saves go there" + number + "  spot"));
    ASSERT_TRUE(killed.prints("step    20/"));
    killed.signal(SIGKILL);
    killed.wait();
  }
  Program stopped = start("run", "null");
  ASSERT_TRUE(stopped.prints("step    20/"));
  stopped.signal(SIGTERM);
  stopped.wait();
  EXPECT_EQ(audit(folder / "run", 0)["attempts"], 4);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "run/summary.json"))["attempts"], 4);
  Program other({gputrain_path(), "run", job, "--output-dir", folder / "other", "--set", "train.max_steps=1000000",
                 "--set", "checkpoint.resume=" + folder / "run/ckpt/latest"});
  EXPECT_TRUE(other.prints("  attempt 5  "));
  ASSERT_TRUE(other.prints("step  "));
  other.signal(SIGTERM);
  other.wait();
  EXPECT_EQ(audit(folder / "other", 0)["attempts"], 5);
}

TEST(DataAudit, NamesLineWhereChainBreaks) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain({"run", write_long_job(folder), "--output-dir", folder / "run", "--set", "train.max_steps=100"})
                .exit_code,
            0);
  const std::string path = folder / "run/ledger.jsonl", whole = read_file(path);
  std::ofstream(path, std::ios::app) << "{\"kind\":\"checkp";  // killed while writing
  EXPECT_TRUE(audit(folder / "run", 0)["ok"]);
  const size_t second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  std::ofstream(path, std::ios::trunc) << whole.substr(0, second) << whole.substr(third);
  EXPECT_THAT(audit(folder / "run", 4)["problems"].dump(),
              HasSubstr("line 2: was changed, or a line before it is missing"));
  EXPECT_THAT(gputrain({"data", "audit", folder / "run"}).out, HasSubstr("ledger  line 2:"));
}

TEST(DataAudit, NamesLineWithImpossibleValues) {
  const TemporaryFolder folder;
  ASSERT_EQ(gputrain({"run", write_long_job(folder), "--output-dir", folder / "run", "--set", "train.max_steps=100"})
                .exit_code,
            0);
  const std::string path = folder / "run/ledger.jsonl", whole = read_file(path);
  const auto change = [&](const std::string& within, const std::string& key, const std::string& value) {
    std::string text = whole;
    const size_t begin = text.find(key, text.find(within)) + key.size(), end = text.find_first_of(",}", begin);
    ASSERT_NE(text.substr(begin, end - begin), value);
    std::ofstream(path, std::ios::trunc) << text.replace(begin, end - begin, value);
  };
  for (const std::string key : {"\"global_batch\":", "\"samples\":", "\"drop_last\":"}) {
    change("\"order\"", key, "0");
    EXPECT_THAT(audit(folder / "run", 4)["problems"].dump(), HasSubstr("line 1: was changed")) << key;
  }
  change("\"kind\":\"end\"", "\"step\":", "9000000000000000000");
  EXPECT_THAT(audit(folder / "run", 4)["findings"].dump(), HasSubstr("fewer samples used than steps were taken"));
}

/// A run of ten steps of 8 samples, then ten of 5.
std::string run_with_two_batch_sizes(const TemporaryFolder& folder) {
  const std::string job = write_long_job(folder), run = folder / "run";
  EXPECT_EQ(gputrain({"run", job, "--output-dir", run, "--set", "train.max_steps=10"}).exit_code, 0);
  const Result on = gputrain({"run", job, "--output-dir", run, "--accept", "--set", "train.max_steps=20", "--set",
                              "train.global_batch_size=5"});
  EXPECT_EQ(on.exit_code, 0) << on.err;
  return run;
}

TEST(DataAudit, AcceptsNewBatchSizeWithinAnEpoch) {
  const TemporaryFolder folder;
  const auto result = audit(run_with_two_batch_sizes(folder), 0);
  EXPECT_TRUE(result["ok"]) << result.dump(2);
  EXPECT_EQ(result["data"]["samples"], 10 * 8 + 10 * 5);
}

TEST(DataAudit, ReportsAttemptThatBeginsElsewhere) {
  const TemporaryFolder folder;
  const std::string run = run_with_two_batch_sizes(folder);
  rewrite(run + "/ledger.jsonl", [](nlohmann::json& line) {
    if (line.contains("order") && line["step"] == 10) line["order"]["epoch_samples"] = 81;
  });
  EXPECT_THAT(audit(run, 4)["findings"][0]["what"], HasSubstr("changed within an epoch"));
  rewrite(run + "/ledger.jsonl", [](nlohmann::json& line) {
    if (line.contains("order")) line["order"]["epoch"] = -1;
  });
  EXPECT_THAT(audit(run, 4)["problems"].dump(), HasSubstr("a line has a value that no run writes"));
}

/// Twenty images, of which two cannot be read, in steps of two.
std::string write_job_with_bad_images(const TemporaryFolder& folder) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = (i % 2 == 0 ? "images/a/" : "images/b/") + std::to_string(i) + ".png";
    folder.write(name, i == 4 || i == 13 ? "no image" : datasets::png_of({0, 0, 255}));
  }
  return folder.write("job.yaml",
                      "device: cpu\nmodel: {type: mlp, config: {hidden: [8]}}\n"
                      "data: {train: {path: " +
                          folder / "images" +
                          ", format: imagefolder}, image: {size: 4}}\n"
                          "train: {max_steps: 10, global_batch_size: 2}\ncheckpoint: {interval: 1}\n");
}

/// The number of steps after which the run had first skipped a sample.
int64_t first_skip(const std::string& run) {
  std::istringstream lines(read_file(run + "/ledger.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["kind"] != "checkpoint" || object["data"]["unreadable"] == 0) continue;
    EXPECT_EQ(object["data"]["unreadable"], 1);
    return object["step"];
  }
  return 0;
}

TEST(DataAudit, CountsSamplesOfTheRunItContinues) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "checkpoint: {interval: 5, keep_last: 9}\n");
  for (const char* batch : {"8", "16"})
    ASSERT_EQ(
        gputrain({"run", job, "--output-dir", folder / batch, "--set", std::string("train.global_batch_size=") + batch})
            .exit_code,
        0);
  const Result on =
      gputrain({"run", job, "--output-dir", folder / "16", "--accept", "--set", "train.global_batch_size=16", "--set",
                "checkpoint.resume=" + (folder / "8/ckpt/step-00000010")});
  ASSERT_EQ(on.exit_code, 0) << on.err;
  const Result audit = gputrain({"data", "audit", folder / "16"});
  EXPECT_EQ(audit.exit_code, 0) << audit.out;
  EXPECT_THAT(audit.out, HasSubstr("240 samples"));  // 10 steps of 8 and 10 of 16
}

TEST(DataAudit, ReportsSkippedSamplesAndTheirLimit) {
  const TemporaryFolder folder;
  const std::string job = write_job_with_bad_images(folder);
  const auto run = [&](const std::string& name, const std::string& fraction, int64_t steps) {
    return gputrain({"run", job, "--accept", "--output-dir", folder / name, "--set",
                     "data.max_bad_fraction=" + fraction, "--set", "train.max_steps=" + std::to_string(steps)});
  };
  ASSERT_EQ(run("whole", "1", 10).exit_code, 0);
  EXPECT_EQ(audit(folder / "whole", 0)["data"]["unreadable"], 2);
  const std::string told = gputrain({"data", "audit", folder / "whole"}).out;
  EXPECT_THAT(told, HasSubstr("unreadable  2 of these samples skipped"));
  EXPECT_THAT(told, HasSubstr("used exactly once per epoch or skipped as unreadable"));
  const int64_t step = first_skip(folder / "whole");
  ASSERT_EQ(run("parts", "0.05", step).exit_code, 0) << "one may be skipped";
  const Result result = run("parts", "0.05", 10);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("2 samples of epoch 0 cannot be read"));
  for (const int64_t end : {12, 20}) EXPECT_EQ(run("two epochs", "0.1", end).exit_code, 0) << "two in each";
}

TEST(DataAudit, RefusesFolderWithoutLedgerOrWithNonsense) {
  const TemporaryFolder folder;
  EXPECT_EQ(gputrain({"data", "audit", folder.path()}).exit_code, 2);
  folder.write("ledger.jsonl", "{\"kind\":\"attempt\",\"attempt\":\"x\"}\n");
  const Result result = gputrain({"data", "audit", folder.path()});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("cannot be understood: a line lacks a value, or has another kind of value"));
}

}  // namespace
}  // namespace gputrain::testing_support
