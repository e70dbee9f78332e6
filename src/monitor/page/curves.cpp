#include "gputrain/monitor/curves.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::monitor {
namespace {

/// Returns numbers as Base64 of `Narrow`, which has 32 bits.
template <class Narrow, class Number>
std::string packed(const std::vector<Number>& numbers) {
  static_assert(sizeof(Narrow) == 4);
  std::string bytes(4 * numbers.size(), '\0');
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto narrow = static_cast<Narrow>(numbers[i]);
    std::memcpy(bytes.data() + 4 * i, &narrow, 4);
  }
  return to_base64(bytes);
}

}  // namespace

std::optional<Curve::Point> Curve::best(bool smaller_is_better) const {
  std::optional<Point> best;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) continue;
    if (!best || (smaller_is_better ? value < best->value : value > best->value)) best = {steps[i], value};
  }
  return best;
}

void Curves::read(const std::filesystem::path& metrics) {
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto object = parse_json(line);
    const auto step = json_value(object, "step", int64_t{-1});
    if (step < 0) continue;
    last_time_ = json_value(object, "time", last_time_);
    if (first_time_ == 0) first_time_ = last_time_;
    for (const auto& [name, value] : object.items()) {
      if (name.find('/') == std::string::npos) continue;
      if (value.is_number()) add(step, name, value.get<double>());
      if (value.is_null()) add(step, name, std::nan(""));
    }
  }
}

void Curves::add(int64_t step, const std::string& metric, double value) {
  Curve& curve = curves_[metric];
  while (!curve.steps.empty() && curve.steps.back() >= step) {
    curve.steps.pop_back();
    curve.values.pop_back();
  }
  curve.steps.push_back(step);
  curve.values.push_back(value);
  last_step_ = std::max(last_step_, step);
}

void Curves::thin(size_t points) {
  for (auto& [name, curve] : curves_) {
    const size_t count = curve.values.size(), parts = std::max<size_t>(1, points / 2);
    if (count <= points) continue;
    Curve kept;
    for (size_t part = 0; part < parts; ++part) {
      const auto begin = curve.values.begin() + static_cast<ptrdiff_t>(part * count / parts);
      const auto end = curve.values.begin() + static_cast<ptrdiff_t>((part + 1) * count / parts);
      const auto [least, greatest] = std::minmax_element(begin, end);
      for (const auto at : std::set{least, greatest}) {
        kept.steps.push_back(curve.steps[static_cast<size_t>(at - curve.values.begin())]);
        kept.values.push_back(*at);
      }
    }
    curve = std::move(kept);
  }
}

void Curves::keep(const std::vector<std::string>& metrics) {
  std::erase_if(curves_, [&](const auto& curve) { return std::ranges::find(metrics, curve.first) == metrics.end(); });
}

nlohmann::ordered_json Curves::json() const {
  std::map<std::vector<int64_t>, int64_t> lists;
  nlohmann::ordered_json all{{"steps", nlohmann::ordered_json::array()}, {"metrics", nlohmann::ordered_json::object()}};
  for (const auto& [name, curve] : curves_) {
    const auto [list, is_new] = lists.try_emplace(curve.steps, std::ssize(lists));
    if (is_new) all["steps"].push_back(packed<uint32_t>(curve.steps));
    all["metrics"][name] = {{"steps", list->second}, {"values", packed<float>(curve.values)}};
  }
  return all;
}

}  // namespace gputrain::monitor
