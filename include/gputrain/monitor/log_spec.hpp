// The `log` section of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::monitor {

struct LogSpec {
  config::Length interval = config::Length{50, config::Length::Unit::steps};
  std::vector<std::string> sinks = {"jsonl", "console"};
  std::optional<int64_t> metrics_port;
  std::string metrics_host = "127.0.0.1";

  static void describe(config::Description<LogSpec>& d);
};

}  // namespace gputrain::monitor
