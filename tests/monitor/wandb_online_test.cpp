#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

#include "../../src/monitor/trackers/wandb_server.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "monitor/tracked_run.hpp"
#include "support/fake_cloud.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

namespace fs = std::filesystem;

const std::string kKey(40, 'k');

class WandbOnline : public TrackedRun {
 protected:
  void SetUp() override {
    setenv("no_proxy", "127.0.0.1", 1);
    setenv("WANDB_API_KEY", kKey.c_str(), 1);
  }
  void TearDown() override { forget_wandb(); }

  /// Starts the server, again at its port if it has one.
  void serve() {
    server_.reset();
    fs::create_directories(state());
    const std::string port = address_.substr(address_.rfind(':') + 1);
    server_ = std::make_unique<testing_support::Program>(std::vector<std::string>{
        "python3", GPUTRAIN_SOURCE_DIR "/tests/monitor/fake_wandb.py", state().string(), port.empty() ? "0" : port});
    ASSERT_TRUE(server_->prints("listening"));
    std::getline(std::ifstream(state() / "address"), address_);
    setenv("WANDB_BASE_URL", address_.c_str(), 1);
  }
  fs::path state() const { return run_folder() / "server"; }
  void set_fault(const std::string& word) const { std::ofstream(state() / "fault") << word; }
  void mend() const { fs::remove(state() / "fault"); }

  std::unique_ptr<Recorder> begin(int64_t step = 0, int64_t evaluated_step = 0) {
    const WandbSpec spec{.project = "corpus", .entity = "team", .name = "first"};
    return TrackedRun::begin({"wandb", std::make_shared<WandbSpec>(spec)}, step, evaluated_step);
  }
  /// What the start page says.
  static std::string place(const Recorder& recorder) {
    const auto places = recorder.places();
    return places.size() == 1 ? places[0].second : "";
  }
  json known() const { return json::parse(std::ifstream(state() / "runs.json")); }
  /// The only run that the server knows.
  json shown() const {
    const json runs = known()["runs"];
    EXPECT_EQ(runs.size(), 1U) << runs;
    return runs.begin().value();
  }
  static std::vector<int64_t> steps(const json& run) {
    std::vector<int64_t> steps;
    for (const json& row : run["rows"]) steps.push_back(row["_step"]);
    return steps;
  }
  /// The file of the only run.
  fs::path file() const {
    for (const auto& entry : fs::recursive_directory_iterator(run_folder() / "wandb"))
      if (entry.path().extension() == ".wandb") return entry.path();
    return {};
  }
  bool is_marked_as_synced() const { return fs::exists(file().string() + ".synced"); }

  bool run_package(std::vector<std::string> arguments) const {
    setenv("HOME", run_folder().c_str(), 1);
    return ::gputrain::testing::run_reference("monitor/wandb_package.py", std::move(arguments));
  }

  std::unique_ptr<testing_support::Program> server_;
  std::string address_;
};

/// `loss` null: not a number.
json rows_of_package(int64_t begin, const json& loss) {
  return {{begin, {{"train/loss", loss}, {"epoch", 0.5}}},
          {begin, {{"val/loss", 1.25}}},
          {begin + 10, {{"train/loss", 1}, {"epoch", 0.5}}},
          {begin + 10, {{"sample", "say c\n\nassistant: cc"}}}};
}

TEST_F(WandbOnline, SendsWhatThePackageSends) {
  GPUTRAIN_NEED_REFERENCE("wandb");
  serve();
  const auto log = [&](Recorder& run, int64_t step, double loss) {
    train(run, step, loss);
    evaluate(run, step, 1.25);
    train(run, step + 10, 1);
    run.log({.step = step + 10, .epoch = 0.5, .kind = "sample", .texts = {{"sample", "say c", "cc", true}}});
  };
  auto stopped = begin();
  EXPECT_THAT(place(*stopped), MatchesRegex(address_ + "/team/corpus/runs/small-3f9a-[0-9a-f]{6}"));
  log(*stopped, 10, NAN);
  end(std::move(stopped), "stopped", 143);
  auto resumed = begin(10, 10);
  log(*resumed, 20, 9);  // the server has this step
  end(std::move(resumed));
  const json all = known(), ours = shown();
  EXPECT_EQ(steps(ours), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_TRUE(is_marked_as_synced());

  json asked{{"project", "corpus"},
             {"entity", "team"},
             {"id", "package"},
             {"name", "first"},
             {"config", ours["config"]},
             {"resume", nullptr},
             {"rows", rows_of_package(10, nullptr)},
             {"exit_code", 143}};
  const fs::path request = run_folder() / "asked.json";
  std::ofstream(request) << asked;
  ASSERT_TRUE(run_package({"log", request, run_folder()}));
  asked.update({{"resume", "must"}, {"rows", rows_of_package(20, 9)}, {"exit_code", 0}});
  std::ofstream(request) << asked;
  ASSERT_TRUE(run_package({"log", request, run_folder()}));
  const json later = known(), package = later["runs"]["team/corpus/package"];
  for (const char* what : {"rows", "summary", "config", "displayName", "ends", "state", "continued"})
    EXPECT_EQ(ours[what], package[what]) << what;
  EXPECT_EQ(ours["offsets"], json({0, 2}));
  EXPECT_EQ(package["offsets"].back(), 2);
  EXPECT_EQ(ours["config"]["optimizer.lr"], 1e-3);
  EXPECT_EQ(ours["config"]["env.MY_API_KEY"], "***");
  std::set<std::string> ours_asks, package_asks;
  for (const std::string path : all["paths"]) ours_asks.insert(path);
  for (const std::string path : later["paths"])
    if (path.find("3f9a") == std::string::npos) package_asks.insert(path);
  EXPECT_EQ(ours_asks, (std::set<std::string>{
                           "/graphql", "/files/team/corpus/" + ours["name"].get<std::string>() + "/file_stream"}));
  EXPECT_EQ(package_asks, (std::set<std::string>{"/graphql", "/files/team/corpus/package/file_stream"}));
}

TEST_F(WandbOnline, SendsEachRowOnceWhenTheServerGoesAndComesBack) {
  serve();
  ::testing::internal::CaptureStderr();
  auto run = begin();
  for (int64_t step = 1; step <= 1500; ++step) train(*run, step, 1);
  server_->signal(SIGKILL);
  server_->wait();
  for (int64_t step = 1501; step <= 3000; ++step) train(*run, step, 1);
  serve();
  end(std::move(run));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, "");
  std::vector<int64_t> all(3000);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps(shown()), all);
  EXPECT_EQ(shown()["ends"], json({0}));
}

TEST_F(WandbOnline, SendsTheRestInTheNextAttempt) {
  serve();
  for (const std::string fault : {"deaf", "busy", "limit", "gone"}) {
    fs::remove_all(run_folder() / "wandb");
    fs::remove(state() / "runs.json");
    serve();
    auto run = begin();
    train(*run, 10, 1);
    train(*run, 20, 1);
    fault == "gone" ? server_.reset() : set_fault(fault);
    ::testing::internal::CaptureStderr();
    end(std::move(run));
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
    EXPECT_THAT(told, AllOf(HasSubstr("log.wandb: " + address_ + " did not get 2 rows of the run: "),
                            HasSubstr("the same command sends what is missing, or `wandb sync --id small-3f9a-"),
                            Not(HasSubstr(kKey))));
    EXPECT_FALSE(is_marked_as_synced());
    mend();
    if (fault == "gone") serve();
    end(begin(20, 20));
    EXPECT_EQ(steps(shown()), (std::vector<int64_t>{10, 20})) << fault;
    EXPECT_EQ(shown()["state"], "finished");
    EXPECT_TRUE(is_marked_as_synced());
  }
}

TEST_F(WandbOnline, NamesACommandThatShowsAllWhereAPartIsShown) {
  GPUTRAIN_NEED_REFERENCE("wandb");
  serve();
  auto first = begin();
  train(*first, 10, 1);
  end(std::move(first), "stopped", 143);
  auto second = begin(10, 10);
  train(*second, 20, 1);
  set_fault("busy");
  ::testing::internal::CaptureStderr();
  end(std::move(second));
  const std::string told = ::testing::internal::GetCapturedStderr(), begins = "`wandb sync ";
  mend();
  const std::string words = told.substr(told.find(begins) + begins.size());
  const std::string id = shown()["name"], whole = id + "-whole", folder = file().parent_path();
  ASSERT_EQ(words.substr(0, words.find('`')), "--id " + whole + " " + folder);
  ASSERT_TRUE(run_package({"sync", "--id", whole, folder}));
  EXPECT_EQ(steps(known()["runs"]["team/corpus/" + id]), (std::vector<int64_t>{10}));
  EXPECT_EQ(steps(known()["runs"]["team/corpus/" + whole]), (std::vector<int64_t>{10, 20}));
}

TEST_F(WandbOnline, GoesOnWithAWrongKeyAndAWholeFile) {
  GPUTRAIN_NEED_REFERENCE("wandb");
  serve();
  const std::string wrong(40, 'w');
  setenv("WANDB_API_KEY", wrong.c_str(), 1);
  auto run = begin();
  EXPECT_THAT(place(*run), AllOf(HasSubstr(address_ + ": answers 401: user is not logged in (check WANDB_API_KEY"),
                                 HasSubstr("`wandb sync " + file().parent_path().string() + "`")));
  ::testing::internal::CaptureStderr();
  train(*run, 10, 1);
  train(*run, 20, 1);
  end(std::move(run));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_THAT(told, AllOf(HasSubstr("did not get 2 rows"), HasSubstr("answers 401"), Not(HasSubstr(wrong))));
  const json kept = found_by("wandb_reference.py", file());
  EXPECT_EQ(kept["rows"].size(), 2U);
  EXPECT_EQ(kept["exit_code"], 0);
  for (const auto& entry : fs::recursive_directory_iterator(run_folder())) {
    if (!entry.is_regular_file()) continue;
    const std::string content{std::istreambuf_iterator<char>(std::ifstream(entry.path()).rdbuf()), {}};
    EXPECT_THAT(content, Not(HasSubstr(wrong))) << entry.path();
  }
}

TEST_F(WandbOnline, TellsOnThePageThatTheServerIsNotThere) {
  const ::gputrain::testing::LoopbackSocket closed;
  const std::string address = "http://127.0.0.1:" + std::to_string(closed.port());
  setenv("WANDB_BASE_URL", address.c_str(), 1);
  auto run = begin();
  EXPECT_THAT(place(*run), AllOf(HasSubstr(address), HasSubstr("the run is shown when the server answers")));
  ::testing::internal::CaptureStderr();
  train(*run, 10, 1);
  end(std::move(run));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("did not get 1 row of the run"), Not(HasSubstr(kKey))));
}

TEST_F(WandbOnline, SaysWhereTheRunIsWhenTheServerComesLate) {
  serve();
  server_.reset();
  auto run = begin();
  serve();
  train(*run, 10, 1);
  ::testing::internal::CaptureStderr();
  end(std::move(run));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the server answers, and the run is shown at " + address_ + "/team/corpus/runs/small-3f9a-"));
  EXPECT_EQ(steps(shown()), (std::vector<int64_t>{10}));
}

TEST_F(WandbOnline, HoldsNobodyUpWhereTheServerHangs) {
  serve();
  set_fault("hangs");
  const auto start = std::chrono::steady_clock::now();
  auto run = begin();
  train(*run, 10, 1);
  end(std::move(run));
  EXPECT_LT(std::chrono::steady_clock::now() - start, ::gputrain::testing::patience(std::chrono::seconds(12)));
  EXPECT_FALSE(file().empty());
}

TEST_F(WandbOnline, GivesEachRunFolderItsOwnRun) {
  serve();
  end(begin());
  fs::rename(run_folder() / "wandb", run_folder() / "wandb.1");
  end(begin());
  EXPECT_EQ(known()["runs"].size(), 2U);
}

class WandbAccess : public ::testing::Test {
 protected:
  wandb::Access of(std::map<std::string, std::string> variables, const std::string& mode = "auto") const {
    variables.emplace("HOME", folder_.path().string());
    return wandb::access_of({.mode = mode}, [&](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  }
  std::string key_for(const std::string& address) const { return of({{"WANDB_BASE_URL", address}}).key; }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(WandbAccess, IsOnlineWhereThereIsAKey) {
  EXPECT_EQ(of({}).why, "offline: no key for https://api.wandb.ai (set WANDB_API_KEY, or run `wandb login`)");
  EXPECT_EQ(of({}).mode, wandb::Mode::offline);
  const auto online = of({{"WANDB_API_KEY", "k"}});
  EXPECT_EQ(online.mode, wandb::Mode::online);
  EXPECT_EQ(online.address, "https://api.wandb.ai");
  EXPECT_EQ(online.pages, "https://wandb.ai");
  EXPECT_EQ(of({{"WANDB_API_KEY", "k"}, {"WANDB_MODE", "offline"}}).why, "offline: WANDB_MODE");
  EXPECT_EQ(of({{"WANDB_API_KEY", "k"}, {"WANDB_MODE", "disabled"}}).mode, wandb::Mode::disabled);
  EXPECT_EQ(of({{"WANDB_API_KEY", "k"}, {"WANDB_MODE", "offline"}}, "online").mode, wandb::Mode::online);
  EXPECT_EQ(of({{"WANDB_API_KEY", "k"}, {"WANDB_MODE", "online"}}, "offline").why, "offline: log.wandb.mode");
}

TEST_F(WandbAccess, RefusesWhatCannotBe) {
  EXPECT_THROW(of({}, "online"), Error);
  EXPECT_THROW(of({{"WANDB_MODE", "online"}}), Error);
  EXPECT_THROW(of({{"WANDB_MODE", "never"}}), Error);
  EXPECT_THROW(of({{"WANDB_API_KEY", "k"}, {"WANDB_BASE_URL", "wandb.ai"}}), Error);
}

TEST_F(WandbAccess, ReadsTheKeyOfTheHostFromNetrc) {
  std::ofstream(folder_.path() / ".netrc") << "machine github.com login me password gh\n"
                                              "machine api.wandb.ai\n  login user\n  password abc\n"
                                              "machine here:8080\n  login user\n  password def\ndefault password x\n";
  EXPECT_EQ(of({}).key, "abc");
  EXPECT_EQ(of({{"WANDB_API_KEY", "mine"}}).key, "mine");
  EXPECT_EQ(key_for("http://here:8080/"), "def");
  EXPECT_EQ(key_for("http://here"), "");
}

TEST_F(WandbAccess, FindsThePagesOfAServer) {
  const auto pages = [&](const std::string& address, const std::string& given = "") {
    return of({{"WANDB_API_KEY", "k"}, {"WANDB_BASE_URL", address}, {"WANDB_APP_URL", given}}).pages;
  };
  EXPECT_EQ(pages("https://api.firm.com"), "https://app.firm.com");
  EXPECT_EQ(pages("https://firm.com/wandb/"), "https://firm.com/wandb");
  EXPECT_EQ(pages("https://api.firm.com", "https://w.firm.com/"), "https://w.firm.com");
}

}  // namespace
}  // namespace gputrain::monitor
