#include "gputrain/monitor/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <stdexcept>

#include "gputrain/config/load.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/monitor/log_spec.hpp"

namespace gputrain::monitor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

Words told;          // what the sinks of this file were given
bool fails = false;  // whether the sink "broken" does

class MemorySink final : public Sink {
 public:
  MemorySink(const config::NoOptions&, const SinkRequest& request) { told.push_back(request.folder.string()); }
  void log(const Record& record) override { told.push_back(record.kind + " " + std::to_string(record.step)); }
  void truncate(int64_t step, int64_t) override { told.push_back("cut at " + std::to_string(step)); }
  void close() override { told.emplace_back("closed"); }
};

class TextSink final : public Sink {
 public:
  TextSink(const config::NoOptions&, const SinkRequest&) {}
  bool is_slow() const override { return true; }
  bool shows_texts() const override { return true; }
  void log(const Record& record) override { told.push_back(record.kind); }
  void truncate(int64_t, int64_t) override {}
  void close() override {}
};
class PictureSink final : public Sink {
 public:
  PictureSink(const config::NoOptions&, const SinkRequest&) {}
  bool is_slow() const override { return true; }
  bool shows_pictures() const override { return true; }
  void log(const Record& record) override { told.push_back(record.kind); }
  void truncate(int64_t, int64_t) override {}
  void close() override {}
};
const config::Registered<PictureSink, config::NoOptions> registered_pictures{sinks(), "pictures", "for this test"};
const config::Registered<TextSink, config::NoOptions> registered_texts{sinks(), "texts", "for this test"};
const config::Registered<MemorySink, config::NoOptions> registered_memory{sinks(), "memory", "for this test"};

class BrokenSink final : public Sink {
 public:
  BrokenSink(const config::NoOptions&, const SinkRequest&) {}
  void log(const Record&) override {
    told.emplace_back("broken");
    if (fails) throw std::runtime_error("no route to host");
  }
  void truncate(int64_t, int64_t) override {
    if (fails) throw std::runtime_error("no route to host");
  }
  void close() override { told.emplace_back("broken closed"); }
};
const config::Registered<BrokenSink, config::NoOptions> registered_broken{sinks(), "broken", "for this test"};

class RecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    told.clear();
    fails = false;
  }
  Console console_{{.enabled = true}};
  SinkRequest request_{"run", console_};
};

TEST_F(RecorderTest, GivesEverythingToASinkThatOneFileRegisters) {
  {
    Recorder recorder({"memory"}, request_);
    recorder.truncate(3, 2);
    recorder.log({.step = 4, .kind = "train"});
    recorder.status({.label = "step"});
  }
  EXPECT_THAT(told, ElementsAre("run", "cut at 3", "train 4", "closed"));
}

TEST_F(RecorderTest, SaysAndWritesNothingAboutAnAttemptThatIsRefused) {
  const std::filesystem::path folder = testing::TempDir() + "refused_attempt";
  std::filesystem::create_directories(folder);
  testing::internal::CaptureStderr();
  { Recorder recorder({"jsonl", "tensorboard", "wandb", "mlflow"}, {.folder = folder, .console = console_}); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(RecorderTest, GoesOnWithoutASinkThatFailsAndSaysSoOnce) {
  fails = true;
  testing::internal::CaptureStderr();
  {
    Recorder recorder(Words{"broken", "memory"}, request_);
    for (int64_t step = 1; step <= 3; ++step) recorder.log({.step = step, .kind = "train"});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: log.sinks: broken fails, and training goes on without it: no route to host\n");
  EXPECT_THAT(told, ElementsAre("run", "broken", "train 1", "train 2", "train 3", "closed"));
}

TEST_F(RecorderTest, GivesTextsToThoseThatShowThem) {
  const Record sample{.kind = "sample", .texts = {{"sample", "to be"}}};
  for (const char* sink : {"texts", "memory"}) {
    Recorder recorder(Words{sink}, request_);
    recorder.log(sample);
  }
  EXPECT_THAT(told, ElementsAre("sample", "run", "closed"));
}

TEST_F(RecorderTest, GivesPicturesToThoseThatShowThem) {
  const Record shown{.kind = "picture", .pictures = {{.name = "val/worst", .png = std::make_shared<std::string>("x")}}};
  for (const char* sink : {"texts", "memory", "pictures"}) {
    Recorder recorder(Words{sink}, request_);
    recorder.log(shown);
    EXPECT_EQ(recorder.shows_pictures(), sink == std::string("pictures"));
  }
  EXPECT_THAT(told, ElementsAre("run", "closed", "picture"));
  EXPECT_FALSE(Recorder().shows_pictures());
}

TEST_F(RecorderTest, RefusesASinkThatCannotContinue) {
  fails = true;
  Recorder recorder({"broken"}, request_);
  EXPECT_THROW(recorder.truncate(0, 0), std::runtime_error);
}

TEST_F(RecorderTest, ShowsOnlyRecordsWithALabelOnTheConsole) {
  testing::internal::CaptureStdout();
  {
    Recorder recorder({"console"}, request_);
    recorder.log({.step = 1, .kind = "event", .text = "resumed"});
    recorder.log({.step = 1, .kind = "eval", .label = "eval", .text = "1 val/loss 2"});
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "eval    1 val/loss 2\n");
}

struct JobWithLog {
  LogSpec log;
  static void describe(config::Description<JobWithLog>& d) { d.key("log", &JobWithLog::log, "log"); }
};

Words sinks_of(const std::string& text) {
  return config::load(config::schema_of<JobWithLog>(), {.file = "job.yaml", .text = text}).as<JobWithLog>().log.sinks;
}

std::string refusal_of(const std::string& text) {
  try {
    sinks_of(text);
  } catch (const config::SpecError& error) {
    return error.what();
  }
  return {};
}

TEST(LogSinks, AreTheFileAndTheConsoleWhereTheJobNamesNone) {
  EXPECT_THAT(sinks_of("log: {interval: 5}"), ElementsAre("jsonl", "console"));
  EXPECT_THAT(sinks_of("log: {sinks: [memory]}"), ElementsAre("memory"));
  EXPECT_THAT(sinks_of("log: {sinks: []}"), IsEmpty());
}

LogSpec log_of(const std::string& text) {
  return config::load(config::schema_of<JobWithLog>(), {.file = "job.yaml", .text = text}).as<JobWithLog>().log;
}

TEST(LogSinks, AreThereOnceWhereTheyHaveAKeyToo) {
  const auto chosen =
      log_of("log: {sinks: [mlflow, jsonl], tensorboard: true, mlflow: {uri: 'http://h'}, wandb: {}}").chosen_sinks();
  Words names;
  for (const auto& choice : chosen) names.push_back(choice.name);
  EXPECT_THAT(names, ElementsAre("mlflow", "jsonl", "tensorboard", "wandb"));
  EXPECT_EQ(chosen[0].as<MlflowSpec>().uri, "http://h");
  EXPECT_THAT(refusal_of("log: {mlflow: {uri: 'sqlite:///x.db'}}"), HasSubstr("is no address of an MLflow server"));
}

TEST(LogSinks, ExplainOtherToolsNames) {
  EXPECT_THAT(refusal_of("report_to: wandb"), HasSubstr("sinks: [jsonl, console, wandb]"));
  EXPECT_THAT(refusal_of("report_to: [tensorboard]"), HasSubstr("sinks: [tensorboard]"));
  EXPECT_THAT(refusal_of("report_to: none"), HasSubstr("leave it out"));
}

TEST(LogSinks, RejectUnknownAndRepeatedNames) {
  EXPECT_THAT(refusal_of("log: {sinks: [jsonn]}"), HasSubstr("jsonl"));
  EXPECT_THAT(refusal_of("log: {sinks: [jsonl, jsonl]}"), HasSubstr("names jsonl more than once"));
}

}  // namespace
}  // namespace gputrain::monitor
