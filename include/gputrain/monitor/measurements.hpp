// Measurements of a run: names in records and in Prometheus.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::monitor {

enum class MeasurementKind { gauge, counter };

/// Measurement in base units: seconds, bytes, hertz, degrees Celsius, shares from 0 to 1.
struct Measurement {
  std::string_view name;  // "gpu/power_watts"
  MeasurementKind kind = MeasurementKind::gauge;
  std::string_view help;
};

/// Lists the measurements of a run as a whole, and of each rank. A task's metrics ("val/top1") are not among them.
std::span<const Measurement> measurements();

/// Lists all names that an alert may follow: measurements, and metrics of tasks as "val/loss".
std::vector<std::string> names_of_measurements();

/// Measurement or task's metric in Prometheus.
struct PrometheusName {
  std::string name;  // "gputrain_gpu_power_watts"
  MeasurementKind kind = MeasurementKind::gauge;
  std::string help;
  double factor = 1;  // factor for values
};
PrometheusName prometheus_name(std::string_view name);

}  // namespace gputrain::monitor
