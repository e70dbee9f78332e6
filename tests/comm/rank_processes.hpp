// Ranks as real processes: a test starts its own executable once per rank, to run one named body.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "support/ports.hpp"

namespace gputrain::testing {

using Environment = std::map<std::string, std::string>;

/// Registers the body of a rank; use at namespace scope. The process exits with the returned code, with the code of an
/// Error that the body throws, or with 99 after any other exception.
struct RankBody {
  RankBody(const char* name, std::function<int()> body);
};

struct RankResult {
  int exit_code = -1;  // -1: killed by `signal`
  int signal = 0;
  std::string output;  // stdout and stderr
  double seconds = 0;  // from start to end
};

class RankProcesses {
 public:
  /// Starts the body once per rank, with RANK, WORLD_SIZE, MASTER_ADDR=127.0.0.1 and a free MASTER_PORT. `extra` adds
  /// variables for all ranks.
  RankProcesses(const std::string& body, int world_size, const Environment& extra = {});
  ~RankProcesses();  // kills the remaining processes
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void start_another(int rank, const Environment& extra = {});  // its result comes after the others
  void kill(int index, int signal);
  pid_t process(int index) const;
  void wait_for_output(int index, const std::string& text);
  void wait_for_end(int index);
  /// Waits at most `limit` for all, then kills the rest.
  std::vector<RankResult> finish(std::chrono::seconds limit = std::chrono::seconds(60));

  struct Process;  // a process of any program

 private:
  void start(int rank, const Environment& extra);

  std::string body_;
  int world_size_;
  Environment common_;
  std::vector<Process> processes_;
};

/// Runs `argv` until it ends. `environment` adds to this process's variables.
RankResult run_program(const std::vector<std::string>& argv, const Environment& environment,
                       std::chrono::seconds limit);

/// This process's groups, from its environment; for use in bodies. START_SECONDS limits the wait for the others, JOB
/// names the job, PROGRAM and RUN must be equal on all ranks; SILENCE_MILLISECONDS and GRACE_MILLISECONDS set the
/// fields of GroupOptions. Rank 0 prints which ranks it waits for, at most twice a second.
comm::ProcessGroups join(std::chrono::milliseconds deadline = std::chrono::seconds(30), at::Device device = at::kCPU);

}  // namespace gputrain::testing
