#include "rents.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "plan_page.hpp"

namespace gputrain::app {
namespace {

constexpr double kHour = 3600;

int nodes_of(const GpuOffer& offer) {
  const int64_t per_host = offer.request.rates.ranks_per_host;
  return static_cast<int>(ceil_divide(int64_t{offer.request.world_size}, per_host));
}

/// Returns a rent with so many machines that may be taken away; one that is stops all ranks.
Rent rent_of(const GpuOffer& offer, const ProviderPrices& provider, const RentTerms& terms, std::string way,
             double price, int spot_nodes) {
  const double per_hour = terms.interruptions_per_hour * spot_nodes;
  Rent rent{.gpu = offer.request.rates.gpus,
            .provider = provider.name,
            .way = std::move(way),
            .dollars_per_hour = price,
            .training_seconds = offer.seconds(),
            .time = {},
            .date = provider.date};
  rent.time = time_with({.between_seconds = per_hour > 0 ? kHour / per_hour : std::numeric_limits<double>::infinity(),
                         .save_seconds = terms.save_seconds,
                         .restart_seconds = terms.restart_seconds},
                        rent.training_seconds);
  rent.dollars = price * offer.request.world_size * rent.time.total / kHour;
  return rent;
}

void add_rents(std::vector<Rent>& rents, const GpuOffer& offer, const ProviderPrices& provider, const GpuPrices& prices,
               const RentTerms& terms) {
  const auto add = [&](std::string way, double price, int spot_nodes) {
    rents.push_back(rent_of(offer, provider, terms, std::move(way), price, spot_nodes));
  };
  const int nodes = nodes_of(offer), fixed = terms.on_demand_nodes;
  if (prices.on_demand) add("on demand", *prices.on_demand, 0);
  if (prices.reserved) add("reserved", *prices.reserved, 0);
  if (prices.spot) add("spot", *prices.spot, nodes);
  if (!prices.on_demand || !prices.spot || fixed == 0) return;
  const double price = (fixed * *prices.on_demand + (nodes - fixed) * *prices.spot) / nodes;
  add(fmt::format("{} of {} on demand", fixed, nodes), price, nodes - fixed);
}

/// Returns the providers of the rents, each once, with page and day.
std::string sources_of(const std::vector<Rent>& rents, const PriceFile& prices) {
  std::set<std::string> used;
  for (const Rent& rent : rents) used.insert(rent.provider);
  std::string text;
  for (const ProviderPrices& provider : prices.providers)
    if (used.contains(provider.name)) text += provider.name + ", " + provider.date + ": " + provider.source + "\n";
  return text;
}

std::string share(double part) { return fmt::format("{:.1f} %", 100 * part); }

}  // namespace

std::vector<Rent> rents_of(const std::vector<GpuOffer>& offers, const PriceFile& prices, const RentTerms& terms) {
  const int nodes = nodes_of(offers.front());  // the same for all
  if (terms.on_demand_nodes >= nodes && terms.on_demand_nodes > 0) {
    throw Error(ExitCode::usage, {.what = fmt::format("--on-demand-nodes {}, and the job has {} in all",
                                                      terms.on_demand_nodes, counted(nodes, "machine")),
                                  .hint = nodes > 1 ? "fewer than these" : "--world-size above --gpus-per-host"});
  }
  std::vector<Rent> rents;
  for (const GpuOffer& offer : offers) {
    if (!offer.fits()) continue;
    for (const ProviderPrices& provider : prices.providers)
      for (const GpuPrices& one : provider.prices)
        if (one.is_of(offer.request.rates.gpus)) add_rents(rents, offer, provider, one, terms);
  }
  std::ranges::stable_sort(rents, {}, &Rent::dollars);
  return rents;
}

std::string rents_page(const std::vector<Rent>& rents, const PriceFile& prices, const RentTerms& terms) {
  if (rents.empty()) return "\nThe file of prices has none for a kind that fits.\n";
  const std::string head = fmt::format(
      "rent    a spot machine is taken away {} times an hour; a save costs {}, a new machine trains after {}\n"
      "saves   as often as checkpoint.interval: auto chooses, by Daly 2006; Young 1974 is shown beside it\n"
      "extra   saves, repeated steps and restarts, on average; all machines are paid while one is replaced\n",
      monitor::significant(terms.interruptions_per_hour), monitor::duration(terms.save_seconds),
      monitor::duration(terms.restart_seconds));
  TextTable table("lllrrrrrrrl");
  table.add({"gpus", "provider", "way", "dollars/h", "save every", "Young", "interruptions", "extra", "time", "dollars",
             "prices of"});
  for (const Rent& rent : rents) {
    const InterruptedTime& time = rent.time;
    const bool is_interrupted = time.interruptions > 0;
    table.add({rent.gpu, rent.provider, rent.way, fmt::format("{:.2f}", rent.dollars_per_hour),
               monitor::duration(time.save_interval), is_interrupted ? monitor::duration(time.young_interval) : "",
               is_interrupted && time.ends() ? fmt::format("{:.1f}", time.interruptions) : "",
               time.ends() ? share(time.total / rent.training_seconds - 1) : "",
               time.ends() ? monitor::duration(time.total) : "never ends",
               time.ends() ? fmt::format("{:.2f}", rent.dollars) : "", rent.date});
  }
  const Rent& best = rents.front();
  const std::string end = best.time.ends() ? fmt::format("\n{} of {}, {}, is the cheapest, with {:.2f} dollars.\n",
                                                         best.gpu, best.provider, best.way, best.dollars)
                                           : "";
  return "\n" + for_terminal(head, kLabelIndent) + "\n" +
         table.text(monitor::Console::detect(true).columns,
                    {"Young", "prices of", "save every", "interruptions", "dollars/h", "extra"}) +
         for_terminal(end, kTextIndent) + "\n" + for_terminal(sources_of(rents, prices), kTextIndent);
}

nlohmann::json rents_json(const std::vector<Rent>& rents, const PriceFile& prices, const RentTerms& terms) {
  const auto source_of = [&](const Rent& rent) {
    return std::ranges::find(prices.providers, rent.provider, &ProviderPrices::name)->source;
  };
  const auto number = [](const Rent& rent, double value) {
    return rent.time.ends() ? nlohmann::json(value) : nlohmann::json();
  };
  auto ways = nlohmann::json::array();
  for (const Rent& rent : rents)
    ways.push_back({{"gpu", rent.gpu},
                    {"provider", rent.provider},
                    {"way", rent.way},
                    {"dollars_per_hour", rent.dollars_per_hour},
                    {"save_interval_seconds", rent.time.save_interval},
                    {"young_interval_seconds",
                     rent.time.interruptions > 0 ? nlohmann::json(rent.time.young_interval) : nlohmann::json()},
                    {"interruptions", number(rent, rent.time.interruptions)},
                    {"training_seconds", rent.training_seconds},
                    {"seconds", number(rent, rent.time.total)},
                    {"dollars", number(rent, rent.dollars)},
                    {"date", rent.date},
                    {"source", source_of(rent)}});
  return {{"interruptions_per_hour", terms.interruptions_per_hour},
          {"save_seconds", terms.save_seconds},
          {"restart_seconds", terms.restart_seconds},
          {"ways", std::move(ways)}};
}

}  // namespace gputrain::app
