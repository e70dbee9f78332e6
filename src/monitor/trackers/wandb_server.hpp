// Client of a server of Weights & Biases: the calls of the package `wandb` for a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/core/process.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "json_server.hpp"
#include "wandb_file.hpp"

namespace gputrain::monitor::wandb {

enum class Mode { online, offline, disabled };

/// Whether a run is shown on a server, and which.
struct Access {
  Mode mode = Mode::offline;
  std::string why = {};                // of a run that is not online
  std::string address = {}, key = {};  // of the interface for programs
  std::string pages = {};              // address of the pages for people
};

/// Completes the job's options by the variables and files that `wandb` reads. Throws Error(usage) for an invalid
/// variable, and if the run must be online and there is no key.
Access access_of(const WandbSpec& spec, const Lookup& lookup);

/// What a server has of a run.
struct Shown {
  std::string link;
  int64_t lines = 0, last_step = -1;  // of its curves
};

/// Client, as JsonServer.
class Server {
 public:
  explicit Server(const Access& access);

  /// Begins a run, or goes on with it if the server may have it. What follows is about this run.
  Shown begin(const Run& run, bool may_be_there);

  /// Sends lines of the curves, which follow the first `offset`, and the newest values. The same lines may be sent
  /// again. `exit_code`: ends the run.
  void send(int64_t offset, const std::vector<std::string>& lines, const std::string& summary,
            std::optional<int> exit_code = std::nullopt);

  /// Says that the run goes on.
  void beat();

  /// Limits the seconds of each further call.
  void hurry(std::chrono::seconds most) { server_.hurry(most); }

 private:
  nlohmann::json query(const std::string& text, const nlohmann::json& variables);
  void stream(const nlohmann::json& content);

  JsonServer server_;
  std::string pages_, run_path_;
};

}  // namespace gputrain::monitor::wandb
