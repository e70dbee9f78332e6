// Messages between the launcher and its agents: one JSON object per line, over the agent's stdin and stdout.
//
//   launcher: hello, alive, find_port, start, signal, stop, goodbye
//   agent:    ready, alive, port, no_log, line, fate, exit, problem, signal
//
// A node's own launcher (join.hpp) first sends `come` and gets hello, wait or refused. After hello it is the agent.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/launch/child.hpp"

namespace gputrain::launch {

inline constexpr int kProtocol = 5;
// Both sides send at least every kAliveEvery. A side that hears nothing for kLongestSilence declares the other lost: a
// host without a network sends nothing, and TCP keeps its connection for minutes.
inline constexpr std::chrono::seconds kAliveEvery{2}, kLongestSilence{15};
// After a suspend longer than this, restart the other side's timeout instead of declaring it lost.
inline constexpr std::chrono::seconds kOwnSleep{5};
// How long ranks may take to end once the run is lost; not enough to save.
inline constexpr std::chrono::seconds kEndGrace{4};

/// The ranks of one host in one attempt.
struct StartOrder {
  int attempt = 1, restarts = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string logs;  // folder of the attempt; empty: no logs
  int first_rank = 0, ranks = 1, world_size = 1;
  int host_number = 0, hosts = 1;
  std::string master_address;
  int master_port = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StartOrder, attempt, restarts, command, environment, logs, first_rank, ranks,
                                   world_size, host_number, hosts, master_address, master_port)

struct RankEnd {
  int rank = 0, process = 0;
  ProcessStatus status;
  bool was_told = false;          // we had sent it a signal to end
  bool killed_by_us = false;      // by one of those; another signal may have come before it had saved
  bool tells_error = false;       // its stderr has an error, or says that it stopped at once
  bool leaves_host = false;       // it made way because its host is about to be taken away
  std::vector<std::string> tail;  // its last lines
  std::string clue;               // what its host or its output says about memory or the GPU
  std::string log;                // its log file; empty: none
};
void to_json(nlohmann::json& json, const RankEnd& end);
void from_json(const nlohmann::json& json, RankEnd& end);

std::string to_line(const nlohmann::json& message);
/// Parses a message; empty if the line is none.
std::optional<nlohmann::json> read_message(std::string_view line);

}  // namespace gputrain::launch
