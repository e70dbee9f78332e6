#include "price_file.hpp"

#include <algorithm>

#include "gputrain/config/load.hpp"
#include "gputrain/config/names.hpp"
#include "gputrain/device/gpu_systems.hpp"

namespace gputrain::app {
namespace {

bool is_day(const std::string& text) {
  constexpr std::string_view kForm = "0000-00-00";
  return std::ranges::equal(text, kForm,
                            [](char is, char form) { return form == '-' ? is == '-' : is >= '0' && is <= '9'; });
}

}  // namespace

bool GpuPrices::is_of(const std::string& kind) const {
  const auto own = device::gpu_system(gpu), other = device::gpu_system(kind);
  return own && other && own->device == other->device && own->memory_bytes == other->memory_bytes;
}

void GpuPrices::describe(config::Description<GpuPrices>& d) {
  d.summary("what a kind of GPU costs, in dollars for an hour of one");
  d.key("gpu", &GpuPrices::gpu, "the kind, as `plan --gpus` names it").required();
  d.key("on_demand", &GpuPrices::on_demand, "rented for as long as one likes, and not taken away").above(0);
  d.key("reserved", &GpuPrices::reserved, "rented for a long time in advance").above(0);
  d.key("spot", &GpuPrices::spot, "may be taken away at any time").above(0);
  d.check([](const GpuPrices& prices, config::SpecIssues& issues) {
    if (!device::gpu_system(prices.gpu))
      issues.add("gpu", "'" + prices.gpu + "' is no kind of GPU that `plan` knows",
                 config::did_you_mean(prices.gpu, device::gpu_system_names()));
    if (!prices.on_demand && !prices.reserved && !prices.spot)
      issues.add("gpu", "has no price", "on_demand, reserved or spot");
  });
}

void ProviderPrices::describe(config::Description<ProviderPrices>& d) {
  d.summary("the prices of a provider");
  d.key("name", &ProviderPrices::name, "the provider").required();
  d.key("source", &ProviderPrices::source, "the page that has them").required();
  d.key("date", &ProviderPrices::date, "the day on which it was read: 2026-11-09").required();
  d.key("prices", &ProviderPrices::prices, "kinds of GPUs").required().elements(1, SIZE_MAX);
  d.check([](const ProviderPrices& provider, config::SpecIssues& issues) {
    if (!is_day(provider.date)) issues.add("date", "'" + provider.date + "' is not a day", "for instance 2026-11-09");
  });
}

void PriceFile::describe(config::Description<PriceFile>& d) {
  d.summary("prices of rented GPUs");
  d.key("providers", &PriceFile::providers, "who rents them out").required().elements(1, SIZE_MAX);
}

std::vector<std::string> PriceFile::gpus() const {
  std::vector<std::string> names;
  for (const ProviderPrices& provider : providers)
    for (const GpuPrices& prices : provider.prices)
      if (std::ranges::find(names, prices.gpu) == names.end()) names.push_back(prices.gpu);
  return names;
}

std::optional<double> PriceFile::cheapest_on_demand(const std::string& gpu) const {
  std::optional<double> least;
  for (const ProviderPrices& provider : providers)
    for (const GpuPrices& prices : provider.prices)
      if (prices.is_of(gpu) && prices.on_demand && (!least || *prices.on_demand < *least)) least = prices.on_demand;
  return least;
}

PriceFile read_prices(const std::string& path) {
  return config::load(config::schema_of<PriceFile>(), {.file = path}).as<PriceFile>();
}

}  // namespace gputrain::app
