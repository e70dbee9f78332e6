// What launcher and agents say to each other: one JSON object per line, over the agent's stdin and stdout.
//
//   launcher: hello, alive, find_port, start, signal, stop, goodbye
//   agent:    ready, alive, port, no_log, line, fate, exit, problem, signal
//
// A node's own launcher (join.hpp) first says who it is, come, and hears hello, wait or refused; then it is the agent.
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
// Both sides speak at least so often, and take a longer silence for the other's end: a host whose network is gone says
// nothing, and the connection to it stands for minutes.
inline constexpr std::chrono::seconds kAliveEvery{2}, kLongestSilence{15};
// Who has not been awake for so long, in a machine that was suspended, knows nothing of the other's silence.
inline constexpr std::chrono::seconds kOwnSleep{5};
// How long ranks may take to end, without time to save, once the run is lost.
inline constexpr std::chrono::seconds kEndGrace{4};

/// The ranks of one host in one attempt.
struct StartOrder {
  int attempt = 1, restarts = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string logs;  // folder of the attempt
  int first_rank = 0, ranks = 1, world_size = 1;
  int host_number = 0, hosts = 1;
  std::string master_address;
  int master_port = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StartOrder, attempt, restarts, command, environment, logs, first_rank, ranks,
                                   world_size, host_number, hosts, master_address, master_port)

/// How a rank ended.
struct RankEnd {
  int rank = 0, process = 0;
  Fate fate;
  bool was_told = false;          // it had been asked to end before, by a signal
  bool killed_by_us = false;      // by one of those; whatever else kills it may have come before it had saved
  bool tells_error = false;       // on its stderr stands what went wrong, or that it ended at once
  bool leaves_host = false;       // it has made way as its host is about to be taken away
  std::vector<std::string> tail;  // its last lines
  std::string clue;               // what its host or its output says about memory or the GPU
  std::string log;                // where all its lines are; empty: nowhere
};
void to_json(nlohmann::json& json, const RankEnd& end);
void from_json(const nlohmann::json& json, RankEnd& end);

std::string to_line(const nlohmann::json& message);
/// Empty for what is no message.
std::optional<nlohmann::json> read_message(std::string_view line);

}  // namespace gputrain::launch
