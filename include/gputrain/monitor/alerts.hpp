// Rules about measurements: what to do when a value is too high or too low for too long.
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

/// "gpu/temperature_celsius > 85 for 1m"
std::string text_of(const AlertSpec& alert);

/// Those that every run has: heat, a lost GPU, a stall, a loss that jumps, a rate that falls, a disk that fills.
std::vector<AlertSpec> default_alerts();

/// Follows rules over time. `>` compares the largest value of all ranks, `<` the smallest.
class AlertRules {
 public:
  explicit AlertRules(std::vector<AlertSpec> alerts);

  struct Change {
    AlertSpec alert;
    bool is_firing = false;  // false: it is over
    double value = 0;
  };
  /// `now` in seconds of any clock. A value that is not there ends an alert.
  std::vector<Change> look(const std::map<std::string, Board::Range>& values, double now);
  /// Those that are firing, in words.
  std::vector<std::string> firing() const;

 private:
  struct Followed {
    AlertSpec alert;
    double since = -1;  // it holds since then; negative: it does not
    bool is_firing = false;
  };
  std::vector<Followed> all_;
};

}  // namespace gputrain::monitor
