// Reports of a run in progress: one record per log line, evaluation and event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

/// Distribution of a tensor's values.
struct Histogram {
  double least = 0, most = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> counts;  // number of values in bins of equal width from the least to the most
};
using Histograms = std::map<std::string, Histogram>;  // "weights/head.weight"

struct Record {
  int64_t step = 0;
  double epoch = 0;
  std::string kind;  // train | eval | event | histograms | sample
  Metrics metrics = {};
  std::string label = {};  // first word of its console line: "step", "eval"; empty: not for the console
  std::string text = {};   // rest of the line; in an event, what happened
  // Media, for sinks that show them; a record has either these or the fields above.
  std::shared_ptr<const Histograms> histograms = {};
  std::map<std::string, std::string> texts = {};  // "sample": text that the model writes

  bool has_media() const noexcept { return histograms || !texts.empty(); }
};

}  // namespace gputrain::monitor
