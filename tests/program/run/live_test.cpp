// A run that goes on: what it serves, the orders it takes, its alerts.
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/base64.hpp"
#include "gputrain/net/server.hpp"
#include "support/endless_run.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using Json = nlohmann::json;

Json state_of(const std::string& run) {
  return Json::parse(net::ask(std::filesystem::path(run), {.url = "/state"}).body);
}

double value_of(const std::string& run, const std::string& name) { return state_of(run)["values"].value(name, 0.0); }

/// Asks again and again until the value has at least that size.
bool reaches(const std::string& run, const std::string& name, double least) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < until) {
    if (value_of(run, name) >= least) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Whether the program has run until its ranks have compared their times.
bool reaches_first_comparison(Program& program, const std::string& run) {
  return program.prints("step    1") && reaches(run, "time/forward_seconds", 1e-9);
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

Result order(const std::string& run, std::vector<std::string> words) {
  words.insert(words.begin(), {"ctl", run});
  return gputrain(words);
}

class LiveRun : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(LiveRun, PausesAndGoesOnWithAnotherRate) {
  Program program(endless(folder_));
  ASSERT_TRUE(program.prints("step    3"));
  ASSERT_EQ(order(run_, {"pause"}).exit_code, 0);
  ASSERT_TRUE(program.prints("pauses after step"));
  ASSERT_TRUE(reaches(run_, "paused", 1));
  const double step = value_of(run_, "steps_total");
  EXPECT_THAT(order(run_, {"set", "optimizer.lr=-1"}).err, HasSubstr("cannot be set"));
  EXPECT_EQ(order(run_, {"set", "optimizer.lr=0.00025"}).exit_code, 0);
  ASSERT_TRUE(program.prints("-> 2.5e-4"));
  EXPECT_THAT(order(run_, {"status"}).out, HasSubstr("paused"));
  EXPECT_EQ(value_of(run_, "steps_total"), step);
  EXPECT_EQ(order(run_, {"resume"}).exit_code, 0);
  ASSERT_TRUE(reaches(run_, "steps_total", step + 3));
  EXPECT_EQ(order(run_, {"stop"}).exit_code, 0);
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(summary(run_)["stopped_by"], "order");
  std::vector<std::string> verbs;
  for (const Json& line : lines_of(run_ + "/ledger.jsonl"))
    if (line["kind"] == "order") verbs.push_back(line["verb"]);
  EXPECT_THAT(verbs, ::testing::ElementsAre("pause", "set", "resume", "stop"));
  EXPECT_THAT(order(run_, {"pause"}).err, HasSubstr("no run answers in this folder"));

  Program again(endless(folder_));
  EXPECT_TRUE(again.prints(" lr 2.5e-4 ")) << "the rate stays set over a resume";
}

TEST_F(LiveRun, StopsAPauseForASignal) {
  Program program(endless(folder_));
  ASSERT_TRUE(program.prints("step    1"));
  ASSERT_EQ(order(run_, {"pause"}).exit_code, 0);
  ASSERT_TRUE(program.prints("pauses after step"));
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 143);
}

TEST_F(LiveRun, IsShownInTheTerminal) {
  Program program(endless(folder_));
  ASSERT_TRUE(reaches_first_comparison(program, run_));
  const Result page = gputrain({"top", run_});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr("job-"), HasSubstr("training"), HasSubstr("/1,000,000  epoch"),
                              HasSubstr("backward"), HasSubstr("rank place")));
  const Json status = Json::parse(order(run_, {"status", "--json"}).out);  // what `top --help` names for programs
  EXPECT_EQ(status["state"], "training");
  EXPECT_GE(status["values"]["steps_total"], 1);
  EXPECT_THAT(gputrain({"top", folder_ / "nowhere"}).err, HasSubstr("no HOST:PORT"));
  EXPECT_THAT(gputrain({"top", run_ + "/ckpt"}).err, HasSubstr("this is no run folder, and there is none in it"));
  program.signal(SIGTERM);
  ASSERT_EQ(program.wait().exit_code, 143);
  const Result ended = gputrain({"top", run_});  // by its files
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string step = std::to_string(summary(run_)["step"].get<int64_t>());
  EXPECT_THAT(ended.out, AllOf(HasSubstr("job-"), HasSubstr("stopped"), HasSubstr("step " + step + "  epoch"),
                               HasSubstr("loss ")));
}

TEST_F(LiveRun, IsListedWithTheOthersOfItsFolder) {
  const std::string runs = folder_ / "runs";
  const std::string job = write_gpt_job(folder_,
                                        "log: {interval: 1}\neval: {interval: 10}\nlimits: {price_per_hour: 3600}\n"
                                        "expect: {train/loss: [0, 1e-9]}\n");
  const auto words = [&](const std::string& name, const std::string& more) {
    return std::vector<std::string>{gputrain_path(), "run", job, "--output-dir", runs + "/" + name, more};
  };
  const std::string long_one = "--set=train.max_steps=1000000";
  EXPECT_EQ(Program(words("good", "--set=seed=1")).wait().exit_code, 0);
  EXPECT_EQ(Program(words("refused", "--verify")).wait().exit_code, 4);
  Program lost(words("lost", long_one));
  ASSERT_TRUE(lost.prints("step    3"));
  lost.signal(SIGKILL);
  lost.wait();
  std::filesystem::copy(runs + "/lost", runs + "/moved", std::filesystem::copy_options::recursive);
  folder_.write("runs/moved/lock", "process 1 on host node7 since 2026-03-01T12:00:00Z\n1 1 of-another-start\n");
  folder_.write("runs/no_run/notes.txt", "");
  Program paused(words("paused", long_one));
  ASSERT_TRUE(paused.prints("step    1"));
  ASSERT_EQ(order(runs + "/paused", {"pause"}).exit_code, 0);
  ASSERT_TRUE(reaches(runs + "/paused", "paused", 1));

  const Json listed = Json::parse(gputrain({"top", runs + "/", "--json"}).out)["runs"];
  std::map<std::string, Json> by_name;
  for (const Json& one : listed) by_name[std::filesystem::path(one["run"].get<std::string>()).filename()] = one;
  EXPECT_EQ(listed[0]["run"], runs + "/paused") << "what goes on comes first";
  std::map<std::string, std::string> states;
  for (const auto& [name, one] : by_name) states[name] = one["state"];
  EXPECT_THAT(states, ::testing::ElementsAre(Pair("good", "done"), Pair("lost", "lost"), Pair("moved", "elsewhere"),
                                             Pair("paused", "paused"), Pair("refused", "failed")));
  const Json good = by_name["good"];
  EXPECT_EQ(good["step"], 20);
  EXPECT_EQ(good["planned_steps"], 20);
  EXPECT_EQ(good["best"]["metric"], "val/loss");
  EXPECT_EQ(good["best"]["value"], summary(runs + "/good")["best"]["val/loss"]["value"]);
  EXPECT_DOUBLE_EQ(good["cost"], good["total_seconds"]) << "at 3600 per hour";
  EXPECT_GE(by_name["lost"]["step"], 1);
  EXPECT_GE(by_name["lost"]["last_sign"], by_name["lost"]["began"]);

  const Result page = gputrain({"top", runs});
  EXPECT_THAT(page.out, AllOf(HasSubstr("5 runs  1 done  1 elsewhere  1 failed  1 lost  1 paused"), HasSubstr("20/20"),
                              HasSubstr("failed exit 4"), HasSubstr("on node7"), Not(HasSubstr("no_run"))));
  std::istringstream lines(page.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_EQ(Json::parse(gputrain({"compare", runs, "--json"}).out)["runs"].size(), 5U);
}

/// Returns the data of a page.
Json data_in(const std::string& page) {
  const std::string before = R"(<script type="application/json" id="data">)";
  const size_t begin = page.find(before) + before.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST_F(LiveRun, LeavesAReportOfAllAttempts) {
  const std::string job = write_gpt_job(folder_, "log: {interval: 1}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", run_}).exit_code, 0);
  const std::string report = read_file(run_ + "/report.html");
  const Json state = data_in(report);
  EXPECT_EQ(state["state"], "done");
  const Json& losses = state["curves"]["metrics"]["train/loss"]["values"];
  EXPECT_EQ(from_base64(losses.get<std::string>())->size(), 20 * sizeof(float));
  EXPECT_EQ(state["settings"]["changed"]["log.interval"], "1");
  EXPECT_TRUE(state["settings"]["others"].contains("train.ema"));
}

TEST_F(LiveRun, IsComparedWithAnother) {
  const std::string job = write_gpt_job(folder_);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "a"}).exit_code, 0);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder_ / "b", "--set", "optimizer.lr=0.02"}).exit_code, 0);
  const Result text = gputrain({"compare", folder_ / "a", folder_ / "b", "--html", folder_ / "both.html"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("optimizer.lr"), HasSubstr("0.02"), Not(HasSubstr("output_dir"))));
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("best"), Not(HasSubstr(folder_.path().string())), HasSubstr("tokens_per_second")));
  const Json page = data_in(read_file(folder_ / "both.html"));
  EXPECT_EQ(page["runs"][0]["name"], "a");
  EXPECT_TRUE(page["runs"][1]["curves"]["metrics"].contains("train/loss"));
  const Json json = Json::parse(gputrain({"compare", folder_ / "a", folder_ / "b", "--json"}).out);
  EXPECT_EQ(json["settings"].size(), 1U) << json["settings"];
  EXPECT_NE(json["results"]["train/loss"][0], json["results"]["train/loss"][1]);
}

TEST_F(LiveRun, SavesAtAnOrder) {
  Program program(endless(folder_));
  ASSERT_TRUE(program.prints("step    1"));
  ASSERT_EQ(order(run_, {"save"}).exit_code, 0);
  EXPECT_TRUE(program.prints("on request"));
}

TEST_F(LiveRun, RecordsAProfileAtAnOrder) {
  Program program(endless(folder_));
  ASSERT_TRUE(program.prints("step    1"));
  const Result refused = order(run_, {"profile", "none"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("'none' is no number of steps"));
  ASSERT_EQ(order(run_, {"profile", "3"}).exit_code, 0);
  ASSERT_TRUE(program.prints("3 steps of "));
  const std::filesystem::path path = run_ + "/profile/rank0.trace.json";
  EXPECT_FALSE(Json::parse(read_file(path))["traceEvents"].empty());
  ASSERT_EQ(order(run_, {"profile", "2"}).exit_code, 0);
  ASSERT_TRUE(program.prints("2 steps of "));
  EXPECT_THAT(read_file(run_ + "/ledger.jsonl"), HasSubstr("records 3 steps after step"));
}

TEST_F(LiveRun, ServesMeasurementsForPrometheus) {
  Program program(endless(folder_, {"--set", "log.metrics_port=0"}));
  ASSERT_TRUE(program.prints("/metrics"));
  ASSERT_TRUE(reaches(run_, "time/forward_seconds", 1e-9));
  const std::string page = net::ask(std::filesystem::path(run_), {.url = "/metrics"}).body;
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  EXPECT_THAT(page, AllOf(HasSubstr("gputrain_steps_total{run=\"job-"),
                          HasSubstr("rank=\"0\",host=\"" + std::string(host.data()) + "\",phase=\"backward\"}")));
}

TEST_F(LiveRun, GoesOnWithoutAPortThatIsTaken) {
  const net::Server other(net::listen_on("127.0.0.1", 0), [](const net::Request&) { return net::Response{}; });
  const std::string job = write_gpt_job(folder_);
  const Result result =
      gputrain({"run", job, "--output-dir", run_, "--set", "log.metrics_port=" + std::to_string(other.port())});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("log.metrics_port"), HasSubstr("the run goes on without it")));
}

/// Options of a run with one rule.
std::vector<std::string> with_alert(const std::string& rule) { return {"--set", "alerts=[{" + rule + "}]"}; }

TEST_F(LiveRun, StopsForAnAlert) {
  Program program(endless(folder_, with_alert("metric: steps_total, op: '>=', value: 5, action: stop")));
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, HasSubstr("alert: steps_total >= 5: now "));
  EXPECT_THAT(result.out, HasSubstr("(alert steps_total >= 5)"));
  int64_t recorded = 0;
  for (const Json& line : lines_of(run_ + "/metrics.jsonl")) {
    if (!line.value("message", "").starts_with("alert steps_total >= 5: now ")) continue;
    ++recorded;
    EXPECT_EQ(line["kind"], "event");
    EXPECT_GE(line["step"], 5);
    EXPECT_GT(line["epoch"], 0);
  }
  EXPECT_EQ(recorded, 1);
}

TEST_F(LiveRun, PausesForAnAlert) {
  Program program(endless(folder_, with_alert("metric: steps_total, op: '>=', value: 5, action: pause")));
  ASSERT_TRUE(program.prints("pauses after step"));
  EXPECT_THAT(state_of(run_)["alerts"], Contains("steps_total >= 5"));
  bool is_told = false;
  const auto events = state_of(run_)["events"];
  for (const auto& event : events) {
    if (event["text"].get<std::string>().find("steps_total >= 5") == std::string::npos) continue;
    is_told = true;
    EXPECT_GE(event["step"].get<int64_t>(), 5);
  }
  EXPECT_TRUE(is_told);
}

TEST_F(LiveRun, SavesForAnAlert) {
  Program program(endless(folder_, with_alert("metric: steps_total, op: '>=', value: 5, action: save")));
  EXPECT_TRUE(program.prints("on request"));
}

TEST_F(LiveRun, StartsAProgramForAnAlert) {
  const std::string script = folder_.write("told.sh", "#!/bin/sh\necho \"$1 $GPUTRAIN_ALERT\" > \"$2\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const std::string told = folder_ / "told";
  Program program(endless(folder_, with_alert("metric: steps_total, op: '>=', value: 5, action: exec, exec: ['" +
                                              script + "', 'a b', '" + told + "']")));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (read_file(told).empty() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(read_file(told), "a b steps_total >= 5\n");
}

/// When the ledger's newest line was written, in seconds since its process began, and in Unix time.
std::pair<double, double> clocks_of_end(const std::string& run) {
  const Json end = lines_of(run + "/ledger.jsonl").back();
  return {end["process_seconds"], end["time"]};
}

TEST_F(LiveRun, EndsForGoodWhenItHasCostTooMuch) {
  const std::vector<std::string> limits{"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=4"};
  Program program(endless(folder_, limits));
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 93);
  const Json end = summary(run_);
  EXPECT_EQ(end["stopped_by"], "limits.max_cost");
  EXPECT_EQ(end["reason"], "limits.max_cost reached, saved");
  EXPECT_EQ(end["cost_limit"], 4);
  EXPECT_GE(end["cost"], 4);
  EXPECT_THAT(result.out, ContainsRegex("\ncost    [0-9.]+ of 4  3600 per hour"));
  EXPECT_THAT(result.out, ContainsRegex("\nnext    .* --set limits.max_cost=[0-9.e+]+ .*# goes on from step"));

  std::vector<double> steps;  // when their lines were written
  for (const Json& line : lines_of(run_ + "/metrics.jsonl"))
    if (line["kind"] == "train") steps.push_back(line["time"]);
  ASSERT_GE(steps.size(), 2U);
  const auto [seconds, time] = clocks_of_end(run_);
  const double limit_reached = time - seconds + 4, of_clocks = 0.05;
  EXPECT_LE(steps[steps.size() - 2], limit_reached + of_clocks) << "no step begins beyond the limit";
}

TEST_F(LiveRun, TakesNoStepBeyondItsCost) {
  const std::vector<std::string> limits{"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=1e-6"};
  const Result result = Program(endless(folder_, limits)).wait();
  EXPECT_EQ(result.exit_code, 93) << result.err;
  EXPECT_EQ(summary(run_)["step"], 0);
  EXPECT_EQ(summary(run_)["stopped_by"], "limits.max_cost");
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("step    ")), HasSubstr("nothing to save yet"),
                                HasSubstr("--set limits.max_cost="), HasSubstr("goes on from step 0")));
}

/// A job whose evaluations would last for days.
std::vector<std::string> evaluating(const TemporaryFolder& folder, std::vector<std::string> more) {
  std::vector<std::string> words = endless(folder);
  for (const char* key :
       {"data.train=!replace {format: synthetic, vocab_size: 67, samples: 64}",
        "data.val=!replace {format: synthetic, vocab_size: 67, samples: 10000000000}", "train.max_steps=2"})
    words.insert(words.end(), {"--set", key});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(LiveRun, EndsAnEvaluationBeyondItsCost) {
  const Result result = Program(evaluating(folder_, {"--set", "limits.price_per_hour=3600", "--set",
                                                     "limits.max_cost=1e-6", "--set", "eval.at_start=true"}))
                            .wait();
  EXPECT_EQ(result.exit_code, 93) << result.err;
  EXPECT_EQ(summary(run_)["stopped_by"], "limits.max_cost");
  EXPECT_TRUE(summary(run_)["metrics"].empty());
}

TEST_F(LiveRun, EvaluatesNothingOnceItHasCostTooMuch) {
  Program program(evaluating(folder_, {}));
  ASSERT_TRUE(program.prints("step    2"));
  program.signal(SIGTERM);  // in the evaluation at the end
  ASSERT_EQ(program.wait().exit_code, 143);
  ASSERT_EQ(summary(run_)["step"], 2);
  const Result again =
      Program(evaluating(folder_, {"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=0.01"})).wait();
  EXPECT_EQ(again.exit_code, 93);
  EXPECT_THAT(again.err, AllOf(HasSubstr("nothing is trained or evaluated"), HasSubstr("--set limits.max_cost=")));
}

TEST_F(LiveRun, StaysDoneBeyondItsCost) {
  const std::vector<std::string> words{"--set", "train.max_time=1s"};
  ASSERT_EQ(Program(endless(folder_, words)).wait().exit_code, 0);
  auto again = words;
  again.insert(again.end(), {"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=0.01"});
  const Result result = Program(endless(folder_, again)).wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(summary(run_)["status"], "done");
}

TEST_F(LiveRun, TellsItsCostWhereverItIsWatched) {
  Program program(endless(folder_, {"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=9000"}));
  ASSERT_TRUE(program.prints("cost    "));
  ASSERT_TRUE(program.prints("step    3"));
  ASSERT_TRUE(reaches(run_, "cost_expected", 1e-9));
  const std::string metrics = net::ask(std::filesystem::path(run_), {.url = "/metrics"}).body;
  EXPECT_THAT(metrics, AllOf(HasSubstr("\ngputrain_cost_total"), HasSubstr("\ngputrain_cost_limit"),
                             HasSubstr("\ngputrain_cost_expected")));
  EXPECT_THAT(gputrain({"top", run_}).out, ContainsRegex("\ncost [0-9.]+ of 9000  about [0-9.e+]+ for the whole run"));
  EXPECT_EQ(Json::parse(gputrain({"top", run_, "--json"}).out)["runs"][0]["cost_limit"], 9000);
  program.signal(SIGTERM);
  const Result result = program.wait();
  ASSERT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.out, ContainsRegex("\ncost    [0-9.]+ of 9000  3600 per hour\n"));  // the first of its lines
  EXPECT_THAT(gputrain({"top", run_}).out, ContainsRegex("\ncost [0-9.]+ of 9000"));
  EXPECT_EQ(summary(run_)["cost_limit"], 9000);
  const Json page = data_in(read_file(run_ + "/report.html"));
  EXPECT_NEAR(page["values"]["cost_total"], summary(run_)["cost"], 0.5);
}

TEST_F(LiveRun, EndsForGoodWhenAllGpusAreIdle) {
  const std::string state = folder_.write("gpus", "utilization 90\n");  // the other one computes half of the time
  auto arguments = endless(folder_, {"--set", "limits.idle={min_gpu_utilization: 60, time_window: 1s}"});
  arguments.insert(arguments.begin() + 1, {"launch", "--nproc-per-node", "2"});
  Program program(arguments, {{"GPUTRAIN_NVML", FAKE_NVML}, {"FAKE_NVML_STATE", state}});
  ASSERT_TRUE(program.prints("step    1"));
  ASSERT_TRUE(reaches(run_, "time/train_seconds_total", 3)) << "one GPU has work";
  folder_.write("gpus", "utilization 10\n");
  const Result result = program.wait();
  EXPECT_EQ(result.exit_code, 93) << result.err;
  EXPECT_EQ(summary(run_)["stopped_by"], "limits.idle");
  EXPECT_THAT(result.out, HasSubstr("(alert gpu/most_utilization_ratio < 0.6"));
}

TEST_F(LiveRun, TrainsNothingOnceItHasCostTooMuch) {
  const std::vector<std::string> price{"--set", "limits.price_per_hour=3600", "--set", "limits.max_cost=3"};
  ASSERT_EQ(Program(endless(folder_, price)).wait().exit_code, 93);
  const Json before = summary(run_);
  const Result again = Program(endless(folder_, price)).wait();
  EXPECT_EQ(again.exit_code, 93);
  EXPECT_THAT(again.err, AllOf(HasSubstr("earlier attempts have cost "), HasSubstr("limits.max_cost")));
  EXPECT_THAT(again.out, Not(HasSubstr("step ")));
  EXPECT_THAT(summary(run_)["reason"].get<std::string>(), HasSubstr("limits.max_cost is 3"));
  EXPECT_THAT(read_file(run_ + "/logs/rank_0000.log"), HasSubstr("nothing is trained"));
  const std::string one_more = "train.max_steps=" + std::to_string(before["step"].get<int64_t>() + 1);
  for (const char* most : {"limits.max_cost=1000", "limits.max_cost=3"}) {  // then it is done, and stays so
    const Result more =
        Program(endless(folder_, {"--set", "limits.price_per_hour=3600", "--set", most, "--set", one_more, "--accept"}))
            .wait();
    EXPECT_EQ(more.exit_code, 0) << most << more.err;
  }
}

TEST_F(LiveRun, AddsUpTheTimeAndTheCostOfItsAttempts) {
  const std::vector<std::string> price{"--set", "limits.price_per_hour=3600"};  // it costs its seconds
  Program program(endless(folder_, price));
  ASSERT_TRUE(program.prints("step    3"));
  program.signal(SIGTERM);
  ASSERT_EQ(program.wait().exit_code, 143);
  const Json first = summary(run_), end = lines_of(run_ + "/ledger.jsonl").back();
  EXPECT_EQ(first["total_seconds"], first["wall_seconds"]);
  const std::string more = "train.max_steps=" + std::to_string(first["step"].get<int64_t>() + 3);
  const Result again =
      Program(endless(folder_, {"--set", "limits.price_per_hour=3600", "--set", more, "--accept"})).wait();
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, ContainsRegex("\ncost    [0-9.]+  3600 per hour  about [0-9.]+ for the whole run\n"));
  const Json second = summary(run_);
  const double total = second["total_seconds"];
  EXPECT_EQ(second["attempts"], 2);
  EXPECT_NEAR(total - second["wall_seconds"].get<double>(), end["process_seconds"], 1e-6);
  EXPECT_NEAR(second["cost"], total, 0.5);
  const Json compared = Json::parse(gputrain({"compare", run_, run_, "--json"}).out)["results"];
  for (const char* name : {"total_seconds", "cost"})
    EXPECT_NEAR(std::stod(compared[name][0].get<std::string>()), second[name], 1e-2 * total) << name;
  const Json listed = Json::parse(gputrain({"top", run_, "--json"}).out)["runs"][0];
  EXPECT_EQ(listed["attempts"], 2);
  EXPECT_GE(listed["total_seconds"], total) << "to the last line of the ledger";
}

TEST_F(LiveRun, GoesOnWithoutAWebhookAndKeepsItSecret) {
  const std::string job = write_gpt_job(folder_);
  const Result result =
      gputrain({"run", job, "--output-dir", run_, "--set", "log.webhook=http://127.0.0.1:1/hooks/T0/hush"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("log.webhook: a message was not taken: no connection"));
  for (const auto& file : std::filesystem::recursive_directory_iterator(run_))
    EXPECT_THAT(file.is_regular_file() ? read_file(file.path()) : "", Not(HasSubstr("hush"))) << file.path();
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("hush")));
}

TEST_F(LiveRun, RefusesAlertsAboutWhatIsNotMeasured) {
  const std::string job = write_gpt_job(folder_, "alerts: [{metric: train/los, value: 5}]\n");
  const Result result = gputrain({"validate", job});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out + result.err, AllOf(HasSubstr("'train/los' is not measured"), HasSubstr("train/loss")));
}

TEST_F(LiveRun, DoesNotActBeforeAnAlertFires) {
  const std::string job = write_gpt_job(folder_, "alerts: [{metric: train/loss, value: 1e9, action: stop}]\n");
  const Result result = gputrain({"run", job, "--output-dir", run_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, Not(HasSubstr("alert")));
}

}  // namespace
}  // namespace gputrain::testing_support
