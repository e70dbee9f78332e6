// What a run reports while it goes on: one record per log line, evaluation and event.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

struct Record {
  int64_t step = 0;
  double epoch = 0;
  std::string kind;  // train | eval | event
  Metrics metrics = {};
  std::string label = {};  // the first word of its console line: "step", "eval"; empty: not for the console
  std::string text = {};   // the rest of the line; of an event, what happened
};

}  // namespace gputrain::monitor
