#include "gputrain/train/spending.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/monitor/format.hpp"

namespace gputrain::train {
namespace {

double rounded_up(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);  // of the second digit
  constexpr double kRounding = 1e-9;
  return std::ceil(value / unit - kRounding) * unit;
}

}  // namespace

std::string Spending::so_far() const {
  return monitor::money(sum) + (most ? " of " + monitor::significant(*most) : "");
}

std::string Spending::text() const {
  std::string text = so_far() + "  " + monitor::significant(per_hour) + " per hour";
  if (!expected || *expected <= sum) return text;
  text += "  about " + monitor::money(*expected) + " for the whole run";
  return most && *expected > *most ? text + ", more than limits.max_cost" : text;
}

double Spending::limit_to_go_on() const {
  const double spent = std::max(sum, most.value_or(0));
  return rounded_up(expected && *expected > spent ? *expected : 2 * spent);
}

std::string Spending::setting_to_go_on() const { return "limits.max_cost=" + monitor::significant(limit_to_go_on()); }

}  // namespace gputrain::train
