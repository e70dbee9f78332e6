// Name of a job file, and settings that replace some of its keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gputrain::app {

/// Options of every subcommand that reads a job.
struct JobRequest {
  std::string file;
  std::vector<std::string> set;  // --set a.b=YAML
  std::optional<std::string> output_dir;
};

}  // namespace gputrain::app
