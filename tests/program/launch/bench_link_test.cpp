// `gputrain bench comm` over a link of known rate and delay: two network namespaces with a cable between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/needs.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

/// Which shaping of a link works here: "netem" (rate and delay) or "tbf" (rate alone). The other's reason in `why`.
bool can_shape(const std::string& how, std::string& why) {
  const std::string name = "gs" + std::to_string(::getpid());
  const std::string shape = how == "netem" ? "netem rate 1gbit delay 10ms" : "tbf rate 200mbit burst 64kb latency 20ms";
  why = gputrain::testing::why_not("ip link add " + name + " type veth peer name " + name + "p && tc qdisc add dev " +
                                   name + " root " + shape + "; status=$?; ip link del " + name + "; exit $status");
  return why.empty();
}

class BenchLink : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string program = gputrain::testing::missing_program({"ip", "tc"});
    GPUTRAIN_SKIP_FOR(program.empty() ? gputrain::testing::no_own_hosts() : program);
    for (int host = 0; host < 2; ++host) must({"ip", "netns", "add", name(host)});
    must({"ip", "-n", name(0), "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", name(1)});
    for (int host = 0; host < 2; ++host) {
      must({"ip", "-n", name(host), "addr", "add", address(host) + "/24", "dev", "eth0"});
      must({"ip", "-n", name(host), "link", "set", "lo", "up"});
      must({"ip", "-n", name(host), "link", "set", "eth0", "up"});
    }
  }
  void TearDown() override {
    for (int host = 0; host < 2; ++host) Program({"ip", "netns", "del", name(host)}).wait(30);
  }

  static void must(const Words& words) {
    const Result result = Program(words).wait(30);
    if (result.exit_code != 0) throw std::runtime_error(words[0] + ": " + result.err);
  }
  static std::string name(int host) { return "gtlink" + std::to_string(::getpid()) + "h" + std::to_string(host); }
  static std::string address(int host) { return "10.233.9." + std::to_string(host + 1); }

  static void shape(const Words& how) {
    for (int host = 0; host < 2; ++host) {
      Words words{"tc", "-n", name(host), "qdisc", "add", "dev", "eth0", "root"};
      words.insert(words.end(), how.begin(), how.end());
      must(words);
    }
  }

  static json measure(const Words& options) {
    std::vector<std::unique_ptr<Program>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Words words{"ip", "netns", "exec", name(rank), gputrain_path(), "bench", "comm", "--json"};
      words.insert(words.end(), options.begin(), options.end());
      ranks.push_back(std::make_unique<Program>(words,
                                                std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                                                   {"WORLD_SIZE", "2"},
                                                                                   {"LOCAL_RANK", "0"},
                                                                                   {"LOCAL_WORLD_SIZE", "1"},
                                                                                   {"MASTER_ADDR", address(0)},
                                                                                   {"MASTER_PORT", "29400"},
                                                                                   {"OMP_NUM_THREADS", "1"}}));
    }
    const Result first = ranks[0]->wait(120), second = ranks[1]->wait(30);
    if (first.exit_code != 0) throw std::runtime_error(first.err);
    if (!second.out.empty()) throw std::runtime_error("rank 1 prints: " + second.out);
    return json::parse(first.out);
  }

  /// Of a frame of 1514 bytes on the cable, 1448 are data.
  static constexpr double kPayload = 1448.0 / 1514;
};

TEST_F(BenchLink, ReachesTheRateOfTheLink) {
  std::string why;
  if (!can_shape("tbf", why)) GPUTRAIN_SKIP_FOR(why);
  shape({"tbf", "rate", "200mbit", "burst", "64kb", "latency", "20ms"});
  const json report = measure({"--min-bytes", "16M", "--max-bytes", "16M", "--iterations", "3", "--warmup", "1"});
  ASSERT_EQ(report["rows"].size(), 4U);
  for (const json& row : report["rows"]) {
    const double megabits = row["busbw"].get<double>() * 8 / 1e6;
    // Gloo's reduce and all_gather leave a direction of the link idle in a part of their time.
    const bool fills_link = row["collective"] == "all_reduce" || row["collective"] == "broadcast";
    EXPECT_GT(megabits, (fills_link ? 0.9 : 0.5) * 200 * kPayload) << row;
    EXPECT_LT(megabits, 1.02 * 200) << row;
    EXPECT_EQ(row["wrong"], 0);
  }
}

TEST_F(BenchLink, ShowsTheDelayOfTheLink) {
  std::string why;
  if (!can_shape("netem", why)) GPUTRAIN_SKIP_FOR(why);
  shape({"netem", "rate", "1gbit", "delay", "10ms", "limit", "10000"});
  const json small = measure({"--max-bytes", "8", "--iterations", "10", "--collectives", "all_reduce"});
  EXPECT_GE(small["rows"][0]["seconds"].get<double>(), 0.010);  // no answer comes before one way is done
  EXPECT_LT(small["rows"][0]["seconds"].get<double>(), 0.100);
  const json large =
      measure({"--min-bytes", "64M", "--max-bytes", "64M", "--iterations", "3", "--collectives", "all_reduce"});
  const double gigabits = large["rows"][0]["busbw"].get<double>() * 8 / 1e9;
  EXPECT_GT(gigabits, 0.6 * kPayload);  // TCP's windows grow over a delay of 20 ms there and back
  EXPECT_LT(gigabits, 1.05);
}

}  // namespace
}  // namespace gputrain::testing_support
