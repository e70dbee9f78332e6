// A file of prices for `gputrain plan --prices`, such as configs/prices/gpus.yaml.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::app {

/// Prices of a kind of GPU, in dollars for an hour of one.
struct GpuPrices {
  std::string gpu;  // as `plan --gpus` names it
  std::optional<double> on_demand, reserved, spot;

  /// Returns whether these are the GPUs of that name; a kind may have two: a100, a100-80.
  bool is_of(const std::string& kind) const;

  static void describe(config::Description<GpuPrices>& d);
};

struct ProviderPrices {
  std::string name;
  std::string source;  // address of the page that has them
  std::string date;    // day on which it was read, "2026-11-09"
  std::vector<GpuPrices> prices;

  static void describe(config::Description<ProviderPrices>& d);
};

struct PriceFile {
  std::vector<ProviderPrices> providers;

  static void describe(config::Description<PriceFile>& d);

  /// Returns the kinds of GPUs, each once, in order.
  std::vector<std::string> gpus() const;
  /// Returns the least price on demand of a kind; empty: there is none.
  std::optional<double> cheapest_on_demand(const std::string& gpu) const;
};

/// Throws config::SpecError with all mistakes of the file.
PriceFile read_prices(const std::string& path);

}  // namespace gputrain::app
