// What a run reports while it goes on: one record per log line, evaluation and event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

/// How the values of a tensor are distributed.
struct Histogram {
  double least = 0, most = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> counts;  // of values, in bins of equal width from the least to the most
};
using Histograms = std::map<std::string, Histogram>;  // "weights/head.weight"

struct Record {
  int64_t step = 0;
  double epoch = 0;
  std::string kind;  // train | eval | event | histograms | sample
  Metrics metrics = {};
  std::string label = {};  // the first word of its console line: "step", "eval"; empty: not for the console
  std::string text = {};   // the rest of the line; of an event, what happened
  // For sinks that show media; a record has either these or what stands above.
  std::shared_ptr<const Histograms> histograms = {};
  std::map<std::string, std::string> texts = {};  // "sample": what the model writes

  bool has_media() const noexcept { return histograms || !texts.empty(); }
};

}  // namespace gputrain::monitor
