// Every measurement that a run makes: its name in records, and how others call it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::monitor {

enum class MeasurementKind { gauge, counter };

/// Values are in base units: seconds, bytes, hertz, degrees Celsius, shares from 0 to 1.
struct Measurement {
  std::string_view name;  // "gpu/power_watts"
  MeasurementKind kind = MeasurementKind::gauge;
  std::string_view help;
};

/// Those of a run as a whole, and those of each rank. A task's metrics ("val/top1") are not among them.
std::span<const Measurement> measurements();

/// All names that an alert may follow: measurements, and metrics of tasks as "val/loss".
std::vector<std::string> names_of_measurements();

/// A measurement or a task's metric as Prometheus has it.
struct PrometheusName {
  std::string name;  // "gputrain_gpu_power_watts"
  MeasurementKind kind = MeasurementKind::gauge;
  std::string help;
  double factor = 1;  // what values are multiplied by
};
PrometheusName prometheus_name(std::string_view name);

}  // namespace gputrain::monitor
