// Reports of a run in progress: one record per log line, evaluation and event.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gputrain/monitor/columns.hpp"

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

struct Record {
  int64_t step = 0;
  double epoch = 0;
  std::string kind;  // train | eval | event | sample
  Metrics metrics = {};
  std::string label = {};            // first word of its console line: "step", "eval"; empty: not for the console
  std::string text = {};             // rest of the line; in an event, what happened
  std::vector<Column> columns = {};  // the same in columns, of which a narrow terminal shows some; empty: it has none
  // "sample": text that the model writes. For sinks that show texts; a record has either these or the fields above.
  std::map<std::string, std::string> texts = {};
};

}  // namespace gputrain::monitor
