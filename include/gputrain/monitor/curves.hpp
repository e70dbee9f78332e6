// Curves of a run: the values of each metric by step, for pages and comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

struct Curve {
  std::vector<int64_t> steps;  // rising
  std::vector<double> values;  // NaN for values that were not finite

  struct Point {
    int64_t step = 0;
    double value = 0;
  };
  /// Returns the first of the best finite values; empty: there is none.
  std::optional<Point> best(bool smaller_is_better) const;
};

class Curves {
 public:
  /// Adds the lines of metrics.jsonl. An absent file has none.
  void read(const std::filesystem::path& metrics);
  /// Adds a value. Those of this and later steps are left out: the run went back.
  void add(int64_t step, const std::string& metric, double value);
  /// Keeps about so many points of each curve: the least and the greatest values of equal parts.
  void thin(size_t points);
  /// Keeps these metrics alone.
  void keep(const std::vector<std::string>& metrics);

  const std::map<std::string, Curve>& by_metric() const noexcept { return curves_; }
  /// Returns the last step of all; 0: there is none.
  int64_t last_step() const noexcept { return last_step_; }
  /// Returns when the first and the last line were written, in Unix time; 0: no line tells it.
  double first_time() const noexcept { return first_time_; }
  double last_time() const noexcept { return last_time_; }

  /// Returns what page/curves.js reads: "steps", lists that metrics share, and "metrics", each with the number of its
  /// list and its values; both as Base64 of little-endian numbers of 32 bits, which a browser reads fast.
  nlohmann::ordered_json json() const;

 private:
  std::map<std::string, Curve> curves_;
  int64_t last_step_ = 0;
  double first_time_ = 0, last_time_ = 0;
};

}  // namespace gputrain::monitor
