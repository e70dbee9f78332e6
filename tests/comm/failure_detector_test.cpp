// Ranks out of step: stopped, stuck, slow, dead, or calling another collective.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::comm {
namespace {

using gputrain::testing::Environment;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::RankResult;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr int kStartAgain = static_cast<int>(ExitCode::restart), kInternal = static_cast<int>(ExitCode::internal);
const Environment kSoon{{"SILENCE_MILLISECONDS", "2500"}, {"GRACE_MILLISECONDS", "1500"}};

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

int from_environment(const char* name) { return std::atoi(std::getenv(name)); }

/// The ranks must end within seconds, far before the collective's own deadline.
std::vector<RankResult> finish_soon(RankProcesses& ranks) {
  const auto begin = std::chrono::steady_clock::now();
  auto results = ranks.finish(40s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  return results;
}

// Rank STOPS stays in user code while the others wait for it.
const RankBody one_stays_away("one_stays_away", [] {
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  groups.enter("in the evaluation after step", 200);
  groups.control().barrier("evaluation");
  std::this_thread::sleep_for(2s);  // a rank reports its position every second
  say("ready");
  if (groups.rank() == from_environment("STOPS")) ::pause();
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  return 0;
});

class WatchOfStoppedRank : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WatchOfStoppedRank, ::testing::Values(0, 1, 2),
                         [](const auto& entry) { return "Rank" + std::to_string(entry.param); });

TEST_P(WatchOfStoppedRank, NamesItAndEndsOthersEarly) {
  const int stopped = GetParam();
  Environment environment = kSoon;
  environment["STOPS"] = std::to_string(stopped);
  RankProcesses ranks("one_stays_away", 3, environment);
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_output(rank, "ready");
  ranks.kill(stopped, SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != stopped) ranks.wait_for_end(rank);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  ranks.kill(stopped, SIGKILL);
  const auto results = ranks.finish();
  const int speaker = stopped == 0 ? 1 : 0;
  const std::string name = "rank " + std::to_string(stopped) + " on ";
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == stopped) continue;
    const auto& output = results[static_cast<size_t>(rank)].output;
    EXPECT_EQ(results[static_cast<size_t>(rank)].exit_code, kStartAgain) << output;
    EXPECT_THAT(output, AllOf(HasSubstr(name), HasSubstr("has not been heard from for 2 s"),
                              HasSubstr("all-reduce of gradients 3 failed")));
    if (rank == speaker) {
      EXPECT_THAT(output, HasSubstr("in the evaluation after step 200, since"));
      EXPECT_THAT(output, HasSubstr("missing  " + name));
    } else {
      EXPECT_THAT(output, AllOf(Not(HasSubstr("missing")), HasSubstr("says more")));
    }
  }
}

const RankBody slow_but_alive("slow_but_alive", [] {
  ProcessGroups groups = join(600s);
  if (groups.rank() == 1) std::this_thread::sleep_for(6s);
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  groups.control().barrier("end");
  return 0;
});

TEST(Watch, SparesSlowRank) {
  RankProcesses ranks("slow_but_alive", 2, kSoon);
  for (const auto& result : finish_soon(ranks)) EXPECT_EQ(result.exit_code, 0) << result.output;
}

const RankBody stuck_in_user_code("stuck_in_user_code", [] {
  ProcessGroups groups = join(3s);
  groups.control().barrier("start");
  groups.enter("in the evaluation after step", 200);
  groups.set_forced_exit_handler([](const Error& error) {
    std::printf("last words: %s\n", error.what());
    std::fflush(stdout);
  });
  if (groups.rank() == from_environment("STOPS")) {
    while (true) ::pause();
  }
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  return 0;
});

class WatchOfStuckRank : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WatchOfStuckRank, ::testing::Values(0, 1),
                         [](const auto& entry) { return "Rank" + std::to_string(entry.param); });

TEST_P(WatchOfStuckRank, NamesAndEndsItAtDeadline) {
  const int stuck = GetParam();
  Environment environment = kSoon;
  environment["STOPS"] = std::to_string(stuck);
  RankProcesses ranks("stuck_in_user_code", 3, environment);
  const auto results = finish_soon(ranks);
  const std::string name = "rank " + std::to_string(stuck) + " on ";
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, kStartAgain) << result.signal << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr(name), HasSubstr("did not come"), HasSubstr("Timed out")));
  }
  EXPECT_THAT(results[0].output, HasSubstr("at       all-reduce of gradients 3, number 1 of the tensor collectives"));
  EXPECT_THAT(results[0].output, HasSubstr(stuck == 0 ? "arrived  ranks 1, 2" : "arrived  ranks 0, 2"));
  EXPECT_THAT(results[0].output,
              ::testing::ContainsRegex("missing  " + name + ".*: in the evaluation after step 200, since"));
  EXPECT_THAT(results[static_cast<size_t>(stuck)].output, HasSubstr("last words: rank " + std::to_string(stuck)));
}

TEST(Watch, NamesKilledRankAtOnce) {
  RankProcesses ranks("one_stays_away", 3, {{"STOPS", "1"}});
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_output(rank, "ready");
  ranks.kill(1, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const auto results = ranks.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].exit_code, kStartAgain) << results[rank].output;
    EXPECT_THAT(results[rank].output, HasSubstr("has ended without a word"));
  }
  EXPECT_THAT(results[0].output, HasSubstr("in the evaluation after step 200, since"));
  EXPECT_THAT(results[2].output, Not(HasSubstr("in the evaluation")));
}

const RankBody ends_by_an_error("ends_by_an_error", [] {
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  try {
    if (groups.rank() == 1)
      throw Error(ExitCode::data, {.what = "train.bin is cut short", .where = {}, .hint = "get it again"});
  } catch (const Error& error) {
    groups.leave(error);
    throw;
  }
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  return 0;
});

TEST(Watch, TellsOthersWhyARankEnds) {
  RankProcesses ranks("ends_by_an_error", 3);
  const auto results = finish_soon(ranks);
  EXPECT_EQ(results[1].exit_code, static_cast<int>(ExitCode::data));
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::data));
    EXPECT_THAT(results[rank].output, HasSubstr("has ended by an error: train.bin is cut short"));
  }
  EXPECT_THAT(results[0].output, HasSubstr("try: get it again"));
}

// Rank FAILS ends with an error and hangs in its cleanup.
const RankBody hangs_at_its_end("hangs_at_its_end", [] {
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  try {
    if (groups.rank() == from_environment("FAILS"))
      throw Error(ExitCode::data, {.what = "train.bin is cut short", .where = {}, .hint = "get it again"});
  } catch (const Error& error) {
    try {
      groups.fail(error);
    } catch (const Error&) {
      while (true) ::pause();
    }
  }
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  return 0;
});

class WatchOfHangingExit : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WatchOfHangingExit, ::testing::Values(0, 1),
                         [](const auto& entry) { return "Rank" + std::to_string(entry.param); });

TEST_P(WatchOfHangingExit, EndsItByItsOwnError) {
  Environment environment = kSoon;
  environment["FAILS"] = std::to_string(GetParam());
  RankProcesses ranks("hangs_at_its_end", 2, environment);
  const auto results = finish_soon(ranks);
  const auto& failed = results[static_cast<size_t>(GetParam())];
  EXPECT_EQ(failed.exit_code, static_cast<int>(ExitCode::data)) << failed.signal << failed.output;
  EXPECT_THAT(failed.output, HasSubstr("error: train.bin is cut short\n  try: get it again"));
  EXPECT_EQ(results[static_cast<size_t>(1 - GetParam())].exit_code, static_cast<int>(ExitCode::data));
}

void come_in_order(size_t rank) {
  const std::string fail = std::getenv("FAIL"), order = std::getenv("ORDER");
  const std::filesystem::path folder = std::getenv("FOLDER");
  for (size_t other = 0; other < order.size(); ++other) {
    const bool is_before = fail[other] != '-' && order[other] < order[rank];
    while (is_before && !std::filesystem::exists(folder / std::to_string(other))) std::this_thread::sleep_for(1ms);
  }
  std::ofstream(folder / std::to_string(rank)).flush();
}

// The ranks that have a letter in FAIL end with an error, in the given ORDER; each waits until those before it are
// about to fail.
const RankBody ends_for_one_reason("ends_for_one_reason", [] {
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  const auto rank = static_cast<size_t>(groups.rank());
  const char reason = std::getenv("FAIL")[rank];
  try {
    if (reason != '-') {
      come_in_order(rank);
      throw Error(ExitCode::data, {.what = std::string("no such file: ") + reason});
    }
    groups.control().barrier("opened");
  } catch (const Error& error) {
    try {
      groups.fail(error);
    } catch (const ReportedElsewhere& silent) {
      return static_cast<int>(silent.code());
    }
  }
  return 0;
});

/// The ranks that report an error of their own.
std::string reporters(const std::string& fail, const std::string& order) {
  std::string folder = (std::filesystem::temp_directory_path() / "gputrain_test_XXXXXX").string();
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  RankProcesses ranks("ends_for_one_reason", static_cast<int>(fail.size()),
                      {{"FAIL", fail}, {"ORDER", order}, {"FOLDER", folder}});
  const auto results = finish_soon(ranks);
  std::filesystem::remove_all(folder);
  std::string reporters;
  for (size_t rank = 0; rank < fail.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, static_cast<int>(ExitCode::data)) << rank;
    const std::string lines = "\n" + results[rank].output;  // the first line may say which rank it waits for
    if (lines.find("\nno such file") != std::string::npos) reporters += std::to_string(rank);
  }
  return reporters;
}

/// Returns whether one rank reports for all in one of three tries: rank 0 has half a second to choose it, in which a
/// busy machine may stop it.
bool is_reported_by(const std::string& ranks, const std::string& fail, const std::string& order) {
  for (int i = 0; i < 3; ++i) {
    const std::string told = reporters(fail, order);
    if (told.size() == 1 && ranks.find(told) != std::string::npos) return true;
  }
  return false;
}

TEST(Watch, LetsRankZeroReportErrorsOfAllRanks) {
  EXPECT_TRUE(is_reported_by("0", "aaa", "000"));
  EXPECT_TRUE(is_reported_by("0", "aaa", "100"));
  EXPECT_TRUE(is_reported_by("0", "aaa", "013"));
}

TEST(Watch, LetsOneRankReportForOthersButZero) { EXPECT_TRUE(is_reported_by("12", "-aa", "000")); }

TEST(Watch, LetsEachRankReportItsOwnError) {
  EXPECT_EQ(reporters("--a", "000"), "2");
  EXPECT_EQ(reporters("abc", "000"), "012");
}

TEST(Watch, LosesNoErrorWhenRankZeroIsLate) { EXPECT_TRUE(is_reported_by("012", "aaa", "901")); }

// The ranks call different collectives as their 11th.
const RankBody they_differ("they_differ", [] {
  ProcessGroups groups = join(600s);
  for (int i = 0; i < 10; ++i) groups.tensors().all_reduce_sum(at::zeros({10}), "warm-up").wait();
  const std::string how = std::getenv("HOW");
  const bool is_other = groups.rank() == 1;
  Group& tensors = groups.tensors();
  if (how == "operation" && is_other) tensors.broadcast(at::zeros({1000}), 0, "weights");
  if (how == "operation" && !is_other) tensors.all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  if (how == "size") tensors.all_reduce_sum(at::zeros({is_other ? 500 : 1000}), "gradients 3").wait();
  if (how == "group" && is_other) groups.control().all_reduce_sum(at::zeros({10}), "agreement").wait();
  if (how == "group" && !is_other) tensors.all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  // The same number of bytes: nothing fails, and the sum is wrong.
  while (how == "type")
    tensors.all_reduce_sum(at::zeros({1000}, is_other ? at::kInt : at::kFloat), "gradients 3").wait();
  groups.control().barrier("end");
  return 0;
});

class CollectiveMismatch : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(How, CollectiveMismatch, ::testing::Values("operation", "size", "group", "type"),
                         [](const auto& entry) { return std::string(entry.param); });

TEST_P(CollectiveMismatch, ShowsWhatEachRankCalled) {
  const std::string how = GetParam();
  RankProcesses ranks("they_differ", 3, {{"HOW", how}});
  const auto results = finish_soon(ranks);
  for (const auto& result : results) {
    EXPECT_EQ(result.signal, 0) << result.output;
    EXPECT_EQ(result.exit_code, kInternal) << result.output;
    EXPECT_THAT(result.output, HasSubstr("the ranks do not call the same collectives"));
  }
  const auto& page = results[0].output;
  if (how == "operation") {
    EXPECT_THAT(page, AllOf(HasSubstr("they differ in number 11 of the tensor collectives"),
                            HasSubstr("called   all-reduce of gradients 3 (1000 x Float) on ranks 0, 2"),
                            HasSubstr("called   broadcast of weights (1000 x Float) on rank 1")));
  }
  if (how == "size") {
    EXPECT_THAT(page, AllOf(HasSubstr("called   all-reduce of gradients 3 (1000 x Float) on ranks 0, 2"),
                            HasSubstr("called   all-reduce of gradients 3 (500 x Float) on rank 1")));
  }
  if (how == "group") {
    EXPECT_THAT(page, AllOf(HasSubstr("they wait for each other"),
                            ::testing::ContainsRegex("at       all-reduce of (gradients 3|agreement)"),
                            ::testing::ContainsRegex("missing  rank .*, waiting for all-reduce of")));
  }
  if (how == "type") {
    EXPECT_THAT(page, AllOf(HasSubstr("(1000 x Float) on ranks 0, 2"), HasSubstr("(1000 x Int) on rank 1")));
  }
}

/// The ports on which this process listens on 127.0.0.1, from /proc/net/tcp.
std::vector<int> listening_ports() {
  std::ifstream table("/proc/net/tcp");
  std::vector<int> ports;
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    unsigned address = 0, port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %x:%x %*x:%*x %x", &address, &port, &state) == 3 && state == 10) {
      ports.push_back(static_cast<int>(port));
    }
  }
  return ports;
}

const RankBody bothered("bothered", [] {
  const auto before = listening_ports();
  ProcessGroups groups = join(600s);
  groups.control().barrier("start");
  if (groups.rank() == 1) {
    for (const int port : listening_ports()) {
      if (std::ranges::find(before, port) != before.end()) continue;
      for (int i = 0; i < 20; ++i) {
        const int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const bool is_connected = ::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
        const std::string junk = i % 2 == 0 ? R"({"hello": 1, "secret": 7})"
                                              "\n"
                                              R"({"bye": {"words": "x", "failed": true}})"
                                              "\n"
                                            : std::string(1000, '[') + "\n";
        if (is_connected && ::send(stranger, junk.data(), junk.size(), MSG_NOSIGNAL) < 0) say("not sent");
      }
    }
    std::this_thread::sleep_for(2s);
  }
  groups.tensors().all_reduce_sum(at::zeros({1000}), "gradients 3").wait();
  groups.control().barrier("end");
  return 0;
});

TEST(Watch, IgnoresStrangers) {
  RankProcesses ranks("bothered", 2, kSoon);
  for (const auto& result : finish_soon(ranks)) EXPECT_EQ(result.exit_code, 0) << result.output;
}

const RankBody belongs("belongs", [] {
  ProcessGroups groups = join();
  groups.control().barrier("end");
  return 0;
});

TEST(Watch, RefusesRanksOfOtherVersionOrJob) {
  for (const auto& [name, values] : std::map<std::string, std::pair<std::string, std::string>>{
           {"PROGRAM", {"gputrain 0.1.0, torch 2.11.0", "gputrain 0.2.0, torch 2.11.0"}},
           {"RUN", {"run quickstart-5d85e2", "run quickstart-111111"}}}) {
    RankProcesses ranks("belongs", 1, {{name, values.first}, {"WORLD_SIZE", "2"}});
    ranks.start_another(1, {{name, values.second}});
    for (const auto& result : ranks.finish()) {
      EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::usage)) << result.output;
      EXPECT_THAT(result.output, AllOf(HasSubstr(values.first), HasSubstr(values.second)));
    }
  }
}

}  // namespace
}  // namespace gputrain::comm
