// Section `sweep:`: a search for good settings by trials of one job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::app {

/// Key of the job that trials vary: by a list of values, or within a range.
struct SweepParameter {
  std::string key;
  std::vector<std::optional<std::string>> values;  // empty: null
  std::optional<double> min, max;
  std::string scale = "linear";
  bool integer = false;

  static void describe(config::Description<SweepParameter>& d);
};

struct SweepSpec {
  std::string method = "random";
  std::optional<int64_t> trials;
  std::string metric = "val/loss";
  std::vector<SweepParameter> parameters;
  config::Auto<int64_t> parallel;
  int64_t first_rung = 1;
  int64_t reduction = 3;

  static void describe(config::Description<SweepSpec>& d);
};

}  // namespace gputrain::app
