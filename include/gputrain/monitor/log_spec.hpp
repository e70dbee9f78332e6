// The `log` section of a job.
#pragma once

#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::monitor {

struct LogSpec {
  config::Length interval = config::Length{50, config::Length::Unit::steps};
  std::vector<std::string> sinks = {"jsonl", "console"};

  static void describe(config::Description<LogSpec>& d);
};

}  // namespace gputrain::monitor
