// Rules about measurements: actions for a value that is too high or too low for too long.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/monitor/board.hpp"

namespace gputrain::monitor {

struct AlertSpec {
  std::string metric;
  std::string op = ">";
  double value = 0;
  config::Duration duration{0};  // `for`
  std::string action = "warn";
  std::vector<std::string> exec;

  static void describe(config::Description<AlertSpec>& d);
};

/// Returns "gpu/temperature_celsius > 85 for 1m".
std::string text_of(const AlertSpec& alert);

/// Returns the alerts of every run: heat, a lost GPU, a stall, a jump of the loss, a drop of the rate, a full disk.
std::vector<AlertSpec> default_alerts();

/// State of rules over time. `>` compares the largest value of all ranks, `<` the smallest.
class AlertRules {
 public:
  explicit AlertRules(std::vector<AlertSpec> alerts);

  struct Change {
    AlertSpec alert;
    bool is_firing = false;  // false: it is over
    double value = 0;
  };
  /// Checks the rules and returns those that start or end. `now`: seconds of any clock. A missing value ends an alert.
  std::vector<Change> look(const std::map<std::string, Board::Range>& values, double now);
  /// Describes the alerts that are firing.
  std::vector<std::string> firing() const;

 private:
  struct Followed {
    AlertSpec alert;
    double since = -1;  // start of the time in which it holds; negative: it does not hold
    bool is_firing = false;
  };
  std::vector<Followed> all_;
};

}  // namespace gputrain::monitor
