// Page in Prometheus' text format.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gputrain::monitor {

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  explicit PrometheusText(Labels common) : common_(std::move(common)) {}

  /// Adds a value. `name` as in records; see prometheus_name().
  void add(const std::string& name, double value, const Labels& labels = {});
  std::string text() const;

 private:
  struct Family {
    std::string head;  // HELP and TYPE
    std::string samples;
  };
  Labels common_;
  std::map<std::string, Family> families_;  // samples of one name must be neighbours
};

}  // namespace gputrain::monitor
