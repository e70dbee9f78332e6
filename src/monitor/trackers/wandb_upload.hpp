// Sink that shows a run on a server of Weights & Biases while it goes on.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/monitor/sink.hpp"
#include "wandb_server.hpp"

namespace gputrain::monitor::wandb {

/// A run, and what of it is in the file that another sink writes.
struct Written {
  std::filesystem::path run_folder, file;
  Run run;
  std::vector<Row> rows = {};  // of earlier attempts
  bool is_new = true;          // the file has just been made: no server has the run

  /// Returns a command that shows all of the run; as another one, if the server may have a part of it.
  std::string sync_command(bool has_part) const;
};

/// Returns a sink that sends the rows that the server lacks, then those of records. What it could not send it says at
/// the end, and it throws nothing. `has_closed` becomes true when it has sent or said that.
std::unique_ptr<Sink> upload(const Access& access, Written written, std::shared_ptr<std::atomic<bool>> has_closed);

}  // namespace gputrain::monitor::wandb
