#include <chrono>
#include <span>

#include <gmock/gmock.h>

#include "../../src/monitor/trackers/mlflow_server.hpp"
#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/image.hpp"
#include "monitor/tracked_run.hpp"
#include "support/fake_cloud.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Mlflow : public TrackedRun {
 protected:
  void SetUp() override {
    setenv("no_proxy", "127.0.0.1", 1);
    for (const char* name : {"URI", "TOKEN", "USERNAME", "PASSWORD"})
      unsetenv(("MLFLOW_TRACKING_" + std::string(name)).c_str());
    unsetenv("MLFLOW_EXPERIMENT_NAME");
  }
  void TearDown() override { SetUp(); }

  void serve(const std::vector<std::string>& words = {}) {
    std::vector<std::string> command{"python3", GPUTRAIN_SOURCE_DIR "/tests/monitor/fake_mlflow.py",
                                     run_folder().string()};
    command.insert(command.end(), words.begin(), words.end());
    server_ = std::make_unique<testing_support::Program>(command);
    ASSERT_TRUE(server_->prints("listening"));
    std::getline(std::ifstream(run_folder() / "address"), address_);
  }
  std::unique_ptr<Recorder> begin(MlflowSpec spec = {}) {
    if (!spec.uri) spec.uri = address_;
    return TrackedRun::begin({"mlflow", std::make_shared<MlflowSpec>(spec)});
  }
  /// What the server knows.
  json known() const { return json::parse(std::ifstream(run_folder() / "runs.json")); }

  std::unique_ptr<testing_support::Program> server_;
  std::string address_;
};

TEST_F(Mlflow, GetsSettingsCurvesAndTheEnd) {
  serve();
  for (int i = 0; i < 250; ++i) settings_["vars.x" + std::to_string(i)] = std::string(499, 'x') + "é";
  setenv("MLFLOW_TRACKING_URI", (address_ + "/").c_str(), 1);
  setenv("MLFLOW_TRACKING_TOKEN", "t-1", 1);
  setenv("MLFLOW_EXPERIMENT_NAME", "chat & more", 1);
  auto run = TrackedRun::begin(sinks().with_defaults("mlflow"));
  train(*run, 10, 2.5);
  train(*run, 20, -INFINITY);
  run->log({.step = 20, .kind = "eval", .metrics = {{"val/top1 (%)", 61.5}}});
  end(std::move(run));
  const json all = known();
  EXPECT_EQ(all["experiments"]["chat & more"], "1");
  ASSERT_EQ(all["runs"].size(), 1U);
  const json& found = all["runs"]["run0"];
  EXPECT_EQ(found["experiment"], "1");
  EXPECT_EQ(found["name"], "small/3f9a");
  EXPECT_EQ(found["status"], "FINISHED");
  EXPECT_EQ(found["tags"]["mlflow.source.name"], "gputrain");
  EXPECT_EQ(found["params"].size(), 256U);
  EXPECT_EQ(found["params"]["optimizer.lr"], "1.0e-03");
  EXPECT_EQ(found["params"]["env.MY_API_KEY"], "***");
  EXPECT_EQ(found["params"]["vars.x7"], std::string(499, 'x'));
  EXPECT_EQ(all["largest"]["params"], 100);
  EXPECT_EQ(found["metrics"], json({{"train/loss", 10, 2.5},
                                    {"epoch", 10, 0.5},
                                    {"train/loss", 20, "-Infinity"},
                                    {"epoch", 20, 0.5},
                                    {"val/top1 ___", 20, 61.5}}));
  EXPECT_EQ(all["authorizations"][0], "Bearer t-1");
}

TEST_F(Mlflow, ContinuesTheRunOfTheFirstAttempt) {
  serve();
  auto first = begin({.experiment = "new", .run_name = "mine"});
  train(*first, 10, 2);
  end(std::move(first), "stopped", 143);
  EXPECT_EQ(known()["runs"]["run0"]["status"], "KILLED");
  settings_["optimizer.lr"] = "0.5";  // a server refuses another value
  auto second = begin({.experiment = "new", .run_name = "mine"});
  train(*second, 20, 1);
  end(std::move(second), "failed", 1);
  const json all = known();
  ASSERT_EQ(all["runs"].size(), 1U);
  EXPECT_EQ(all["runs"]["run0"]["name"], "mine");
  EXPECT_EQ(all["runs"]["run0"]["status"], "FAILED");
  EXPECT_EQ(all["runs"]["run0"]["metrics"].size(), 4U);
}

TEST_F(Mlflow, GetsAFileOfWhatTheModelWritesAtAStep) {
  serve();
  const auto write = [](Recorder& run, int64_t step, const std::string& answer) {
    run.log({.step = step, .kind = "sample", .texts = {{"sample", "say c", answer, true}, {"sample/2", "to", " be"}}});
  };
  auto killed = begin();
  write(*killed, 10, "c");
  write(*killed, 20, "x");
  end(std::move(killed), "failed", 1);
  auto resumed = begin();
  write(*resumed, 20, "cc");
  end(std::move(resumed));
  const json files = known()["files"];
  EXPECT_EQ(files.size(), 2U);
  EXPECT_EQ(files["0/run0/artifacts/samples/step-00000020.txt"],
            "# sample\nsay c\n\nassistant: cc\n\n# sample/2\nto be\n\n");
}

TEST_F(Mlflow, GetsPicturesOfAStepAsFiles) {
  serve();
  auto killed = begin();
  for (const int64_t step : {10, 20}) show(*killed, step, 0);
  end(std::move(killed), "failed", 1);
  auto resumed = begin();
  show(*resumed, 20, 255);
  end(std::move(resumed));
  const json all = known(), files = all["files"];
  EXPECT_EQ(files.size(), 4U);
  const std::string folder = "0/run0/artifacts/pictures/step-00000020/";
  EXPECT_EQ(files[folder + "worst.txt"], "1. cat → dog\n2. dog → cat");
  const std::string png = from_base64(files[folder + "worst.png"].get<std::string>()).value();
  data::ImageDecoder decoder;
  EXPECT_EQ(decoder.open(std::as_bytes(std::span(png)), "worst.png"), (data::ImageDecoder::Size{3, 2}));
  EXPECT_EQ(*decoder.decode(3).pixels, 255);
  EXPECT_EQ(all["types"]["worst.png"], "image/png");
}

TEST_F(Mlflow, TellsOnceThatItKeepsNoFiles) {
  serve({"elsewhere"});
  ::testing::internal::CaptureStderr();
  auto run = begin();
  for (const int64_t step : {10, 20}) run->log({.step = step, .kind = "sample", .texts = {{"sample", "a", "b"}}});
  show(*run, 20, 0);
  train(*run, 30, 1);
  end(std::move(run));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_THAT(told, HasSubstr("keeps no files: what the model writes is in samples.jsonl alone, and pictures"));
  EXPECT_EQ(known()["runs"]["run0"]["status"], "FINISHED");
}

TEST_F(Mlflow, BeginsAnewWhereTheServerHasForgotten) {
  serve();
  std::ofstream(run_folder() / "mlflow.json") << json{{"uri", address_}, {"run_id", "gone"}, {"has_params", true}};
  auto run = begin();
  train(*run, 10, 2);
  end(std::move(run));
  EXPECT_EQ(known()["runs"]["run0"]["params"].size(), settings_.size());
}

TEST_F(Mlflow, SendsLaterWhatABusyServerDidNotTake) {
  for (const std::string word : {"busy", "closes"}) {
    serve({word});
    ::testing::internal::CaptureStderr();
    auto run = begin();
    for (int64_t step = 1; step <= 2000; ++step) train(*run, step, 1);
    end(std::move(run));
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
    EXPECT_THAT(told, HasSubstr("training continues, and metrics are sent when the server answers"));
    EXPECT_EQ(known()["runs"]["run0"]["metrics"].size(), 4000U);
    EXPECT_EQ(known()["largest"]["metrics"], 1000);
    std::filesystem::remove(run_folder() / "mlflow.json");
  }
}

TEST_F(Mlflow, GoesOnWithoutAServerAndKeepsSecrets) {
  const ::gputrain::testing::LoopbackSocket closed;
  ::testing::internal::CaptureStderr();
  auto run = begin({.uri = "http://me:pa55@127.0.0.1:" + std::to_string(closed.port())});
  train(*run, 10, 2);
  train(*run, 20, 2);
  end(std::move(run));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: log.mlflow: http://me:***@127.0.0.1"), HasSubstr("did not get 4 values"),
                    Not(HasSubstr("pa55"))));
}

TEST_F(Mlflow, IsLeftOutAfterARefusal) {
  serve({"refuses"});
  ::testing::internal::CaptureStderr();
  auto run = begin();
  train(*run, 10, 2);
  end(std::move(run));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("mlflow fails, and training goes on without it: "));
}

TEST_F(Mlflow, GivesUpARequestThatHangs) {
  serve({"hangs"});
  MlflowServer server({.uri = address_, .experiment = "x"});
  server.hurry(std::chrono::seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(server.experiment(), net::Interruption);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, ::gputrain::testing::patience(std::chrono::seconds(8)));
}

MlflowAccess access_of(const std::map<std::string, std::string>& variables) {
  return mlflow_access({}, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MlflowAccess, IsWhatMlflowReads) {
  EXPECT_EQ(access_of({}).uri, "http://127.0.0.1:5000");
  EXPECT_EQ(access_of({}).experiment, "Default");
  const auto both = access_of({{"MLFLOW_TRACKING_TOKEN", "t"}, {"MLFLOW_TRACKING_USERNAME", "u"}});
  EXPECT_EQ(both.token + both.user, "t");
  const auto all =
      access_of({{"MLFLOW_TRACKING_TOKEN", "t"}, {"MLFLOW_TRACKING_USERNAME", "u"}, {"MLFLOW_TRACKING_PASSWORD", "p"}});
  EXPECT_EQ(all.token + all.user + all.password, "up");
  EXPECT_THROW(access_of({{"MLFLOW_TRACKING_URI", "sqlite:///x.db"}}), Error);
  EXPECT_THROW(access_of({{"MLFLOW_TRACKING_TOKEN", "t\nX-Other: y"}}), Error);
}

}  // namespace
}  // namespace gputrain::monitor
