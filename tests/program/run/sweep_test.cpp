// `gputrain sweep`: trials that are runs, kills, results.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/ports.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::string write_swept_job(const TemporaryFolder& folder, const std::string& sweep) {
  return folder.write("job.yaml",
                      "schema: 1\ndevice: cpu\nmodel: {type: mlp}\n"
                      "data: {train: {format: synthetic, samples: 60}, val: {format: synthetic, samples: 30}, "
                      "image: {size: 8}}\n"
                      "train: {max_steps: 18, global_batch_size: 10}\neval: {interval: 2}\n"
                      "checkpoint: {interval: 4}\noptimizer: {type: sgd, lr: 0.01}\nsweep: " +
                          sweep + "\n");
}

constexpr const char* kAsha =
    "{method: asha, trials: 12, parameters: [{key: optimizer.lr, min: 1e-5, max: 1, scale: log}, "
    "{key: optimizer.momentum, values: [0, 0.9]}]}";

Json state_in(const std::string& sweep) { return Json::parse(read_file(sweep + "/sweep.json")); }

TEST(SweepVerb, EndsLikeAnUndisturbedOneAfterTwoKills) {
  const TemporaryFolder folder;
  const std::string job = write_swept_job(folder, kAsha), whole = folder / "whole", killed = folder / "killed";
  const Result result = gputrain({"sweep", job, "--output-dir", whole});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* moment : {"trial   2/12", "trial   7/12"}) {
    Program program({gputrain_path(), "sweep", job, "--output-dir", killed});
    ASSERT_TRUE(program.prints(moment)) << moment;
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
  }
  const Result last = gputrain({"sweep", job, "--output-dir", killed});
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, Not(HasSubstr("trial   1/12")));  // is done
  EXPECT_EQ(state_in(killed), state_in(whole));
  EXPECT_THAT(read_file(whole + "/sweep.html"), HasSubstr(R"("state":"done")"));
  const Result compared = gputrain({"compare", whole, "--json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_EQ(Json::parse(compared.out)["runs"].size(), 12U) << "its trials";
  int64_t ended = 0, done = 0;
  const Json trials = state_in(whole)["trials"];
  for (const Json& trial : trials) {
    ended += trial["state"] == "ended";
    done += trial["state"] == "done";
  }
  EXPECT_EQ(ended + done, 12);
  EXPECT_GE(ended, 5);  // asha saved these
  EXPECT_GE(done, 1);
}

TEST(SweepVerb, SaysWhichSettingsAreBestAndWritesTheirJob) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder,
                      "{method: grid, metric: val/top1, parallel: 2, parameters: [{key: optimizer.lr, "
                      "values: [1e-9, 0.05]}, {key: train.label_smoothing, values: [0, 0.1]}]}");
  const std::string sweep = folder / "sweep";
  const Result result = gputrain({"sweep", job, "--output-dir", sweep});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("4 trials of grid, 2 at a time, for the highest val/top1"));
  const Json trials = state_in(sweep)["trials"];
  size_t best = 0;
  for (size_t i = 0; i < trials.size(); ++i) {
    const std::string run = sweep + "/trial-00" + std::to_string(i + 1);
    const Json measured = Json::parse(read_file(run + "/summary.json"))["best"]["val/top1"]["value"];
    EXPECT_EQ(trials[i]["value"], measured);
    if (trials[i]["value"] > trials[best]["value"]) best = i;
  }
  EXPECT_EQ(trials[best]["settings"]["optimizer.lr"], "0.05");
  const Result top = gputrain({"top", sweep});
  EXPECT_THAT(top.out, AllOf(HasSubstr("4 of 4 trials over"), HasSubstr("val/top1"), HasSubstr("optimizer.lr 0.05")))
      << top.err;
  const Json compared = Json::parse(gputrain({"compare", sweep, "--json"}).out);
  EXPECT_EQ(compared["runs"].size(), 4U);
  EXPECT_EQ(compared["settings"]["optimizer.lr"].size(), 4U);
  const Result again = gputrain({"run", sweep + "/best.yaml"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const Json summary = Json::parse(read_file(sweep + "/best/summary.json"));
  EXPECT_EQ(summary["best"]["val/top1"]["value"], trials[best]["value"]);
  const Result more = gputrain({"sweep", job, "--output-dir", sweep});
  EXPECT_EQ(more.exit_code, 0) << "its folder is still that of the sweep" << more.err;
}

TEST(SweepVerb, GoesOnAfterTrialsThatFailAndStopsAtAMistake) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder, "{method: grid, parameters: [{key: optimizer.lr, values: [0.01, 1e30]}]}");
  const Result result = gputrain({"sweep", job, "--output-dir", folder / "sweep"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("exit 4"));
  EXPECT_EQ(state_in(folder / "sweep")["trials"][1]["state"], "failed");
  const Result mistake = gputrain(
      {"sweep", job, "--output-dir", folder / "other", "--set", "model.pretrained=/nowhere/model.safetensors"});
  EXPECT_NE(mistake.exit_code, 0);
  EXPECT_THAT(mistake.err, AllOf(HasSubstr("the trial cannot run"), HasSubstr("/nowhere")));
}

TEST(SweepVerb, GoesOnAfterATrialThatHasSpentItsBudget) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder, "{method: grid, parameters: [{key: optimizer.lr, values: [0.01, 0.02]}]}");
  const Result result = gputrain({"sweep", job, "--output-dir", folder / "sweep", "--set", "train.max_steps=1000000",
                                  "--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=0.001"});
  EXPECT_NE(result.exit_code, 93) << "no trial was stopped from outside";
  for (const Json& trial : state_in(folder / "sweep")["trials"]) EXPECT_EQ(trial["exit_code"], 93) << trial;
}

TEST(SweepVerb, GivesEachTrialWhatOnlyOneRunMayUse) {
  const TemporaryFolder folder;
  const std::string job = write_swept_job(
      folder, "{method: grid, parallel: 2, parameters: [{key: optimizer.lr, values: [0.001, 0.01, 0.05]}]}");
  const std::string sweep = folder / "sweep", copies = folder / "copies";
  const int port = gputrain::testing::free_port();
  const std::vector<std::string> words{"sweep",        job,
                                       "--output-dir", sweep,
                                       "--set",        "checkpoint.mirror=" + copies,
                                       "--set",        "name=ours",
                                       "--set",        "log.metrics_port=" + std::to_string(port),
                                       "--set",        "log.wandb={mode: offline, name: tried}"};
  const Result result = gputrain(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* trial : {"trial-001", "trial-002", "trial-003"}) {
    EXPECT_TRUE(std::filesystem::exists(copies + "/" + trial + "/latest")) << trial;
    const std::string resolved = read_file(sweep + "/" + trial + "/job.resolved.yaml");
    EXPECT_THAT(resolved,
                AllOf(HasSubstr("name: ours-" + std::string(trial)), HasSubstr("name: tried-" + std::string(trial))));
  }
  EXPECT_THAT(read_file(sweep + "/trial-002/job.resolved.yaml"),
              HasSubstr("metrics_port: " + std::to_string(port + 1)));
  EXPECT_THAT(read_file(sweep + "/trial-002.log"), Not(HasSubstr("the run goes on without it")));
  const std::string best = read_file(sweep + "/best.yaml");
  EXPECT_THAT(best, AllOf(HasSubstr("name: ours\n"), HasSubstr("mirror: " + copies + "\n"), HasSubstr("name: tried\n"),
                          HasSubstr("metrics_port: " + std::to_string(port) + "\n")));
}

TEST(SweepVerb, EndsWithAnErrorWhereMostTrialsFailed) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder, "{method: grid, parameters: [{key: data.train.samples, values: [60, 1, 2]}]}");
  const Result result = gputrain({"sweep", job, "--output-dir", folder / "sweep", "--set", "data.last=drop"});
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("2 of 3 trials failed; the first one: exit 2: "));
  EXPECT_TRUE(std::filesystem::exists(folder / "sweep/best.yaml"));
}

TEST(SweepVerb, WritesABestJobWithTheReferencesOfItsSecrets) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder, "{method: grid, parameters: [{key: optimizer.lr, values: [0.01, 0.02]}]}");
  const std::map<std::string, std::string> hook{{"HOOK", "http://127.0.0.1:1/T0/hush"}};
  const Result result = gputrain({"sweep", job, "--output-dir", folder / "sweep", "--set", "log.webhook=${env:HOOK}",
                                  "--set", "env.MAX_TOKENS=2048", "--set", "env.API_TOKEN=${env:HOOK}"},
                                 hook);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string best = folder / "sweep/best.yaml", text = read_file(best);
  EXPECT_THAT(text, AllOf(HasSubstr("webhook: \"${env:HOOK:-***}\""), HasSubstr("API_TOKEN: \"${env:HOOK:-***}\""),
                          HasSubstr("MAX_TOKENS: \"2048\""), Not(HasSubstr("hush"))));
  const Result again = gputrain({"run", best, "--output-dir", folder / "again"}, hook);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("log.webhook: a message was not taken")) << "it was sent";
  const Result without = gputrain({"run", best, "--output-dir", folder / "without"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("*** stands for a secret"));
}

TEST(SweepVerb, NamesASecretThatABestJobLacks) {
  const TemporaryFolder folder;
  const std::string job = write_swept_job(folder, "{method: grid, parameters: [{key: optimizer.lr, values: [0.01]}]}");
  const Result result = gputrain({"sweep", job, "--output-dir", folder / "sweep", "--set", "env.DB_PASSWD=hush"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string best = folder / "sweep/best.yaml";
  for (const char* verb : {"run", "validate", "sweep"}) {
    const Result refused = gputrain({verb, best});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("env.DB_PASSWD: *** stands for a secret"), HasSubstr("--set 'env.DB_PASSWD=")));
  }
  EXPECT_EQ(gputrain({"validate", best, "--set", "env.DB_PASSWD=hush"}).exit_code, 0);
}

TEST(SweepVerb, StopsWithItsTrialsAndGoesOn) {
  const TemporaryFolder folder;
  const std::string job =
      write_swept_job(folder, "{method: random, trials: 1, parameters: [{key: optimizer.lr, min: 0.01, max: 0.1}]}");
  const std::string sweep = folder / "sweep";
  const std::vector<std::string> command{gputrain_path(),        "sweep", job,
                                         "--output-dir",         sweep,   "--set",
                                         "train.max_steps=1500", "--set", "eval.interval=500"};
  const auto has_begun = [&] {
    const std::string summary = sweep + "/trial-001/summary.json";
    return std::filesystem::exists(summary) && Json::parse(read_file(summary))["status"] == "begun";
  };
  for (const bool from_outside : {false, true}) {
    Program program(command);
    ASSERT_TRUE(program.prints("trial   1/1"));
    while (!has_begun()) {
      ASSERT_TRUE(program.is_running());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (from_outside) {  // a trial alone, as a cloud's notice does
      Program kill({"/bin/sh", "-c", "pkill -TERM -f '[o]utput-dir " + sweep + "/trial-001'"});
      EXPECT_EQ(kill.wait().exit_code, 0);
    } else {
      program.signal(SIGTERM);
    }
    const Result result = program.wait();
    EXPECT_EQ(result.exit_code, 143) << result.err << result.out;
    EXPECT_THAT(result.out, HasSubstr("the same command goes on"));
  }
  Program last(command);
  const Result result = last.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(state_in(sweep)["trials"][0]["state"], "done");
}

TEST(SweepVerb, RefusesTheSweepOfAnotherJob) {
  const TemporaryFolder folder;
  const std::string job = write_swept_job(folder, "{method: grid, parameters: [{key: optimizer.lr, values: [0.01]}]}");
  const std::string sweep = folder / "sweep";
  ASSERT_EQ(gputrain({"sweep", job, "--output-dir", sweep}).exit_code, 0);
  for (const char* other : {"sweep.metric=val/top1", "train.max_steps=20"}) {
    const Result result = gputrain({"sweep", job, "--output-dir", sweep, "--set", other});
    EXPECT_EQ(result.exit_code, 2) << other;
    EXPECT_THAT(result.err, HasSubstr("another --output-dir"));
  }
  EXPECT_EQ(gputrain({"sweep", job, "--output-dir", sweep}).exit_code, 0);  // nothing is left to do
}

TEST(SweepVerb, RefusesWhatMakesNoSense) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& sweep) {
    const Result result = gputrain({"sweep", write_swept_job(folder, sweep), "--output-dir", folder / "sweep"});
    EXPECT_EQ(result.exit_code, 2) << sweep;
    return result.err;
  };
  EXPECT_THAT(refusal("null"), HasSubstr("the job has no sweep"));
  EXPECT_THAT(refusal("{method: grid, parameters: [{key: optimizer.lr, min: 1, max: 2}]}"), HasSubstr("not a range"));
  EXPECT_THAT(refusal("{trials: 2, parameters: [{key: optimizer.lr, min: 2, max: 1}]}"), HasSubstr("not above min"));
  EXPECT_THAT(refusal("{trials: 2, parameters: [{key: optimizer.rl, min: 1, max: 2}]}"),
              HasSubstr("did you mean 'lr'"));
  EXPECT_THAT(refusal("{trials: 2, metric: val/f2, parameters: [{key: optimizer.lr, min: 1, max: 2}]}"),
              HasSubstr("no evaluation measures 'val/f2'"));
  const auto validated = [&](const std::string& parameters) {
    const std::string job = write_swept_job(folder, "{method: grid, parameters: [" + parameters + "]}");
    return gputrain({"validate", job}).err;
  };
  EXPECT_THAT(validated("{key: train.max_grad_norm, values: [1, much]}"),
              AllOf(HasSubstr("sweep.parameters[0].values[1]: no trial can take much"), Not(HasSubstr("--set"))));
  EXPECT_EQ(validated("{key: train.max_grad_norm, values: [null, 1]}"), "");
  const std::string depends =
      "{key: optimizer.type, values: [adamw]}, {key: optimizer.betas, values: [\"[0.9, 0.9]\"]}";
  EXPECT_EQ(validated(depends), "") << "a trial takes both";
  const std::string job = write_swept_job(folder, kAsha);
  const Result run = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("gputrain sweep"));
}

}  // namespace
}  // namespace gputrain::testing_support
