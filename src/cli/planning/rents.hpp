// Ways to rent the GPUs of a plan: on demand, reserved, spot, or some machines on demand and the others spot.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gpu_offers.hpp"
#include "gputrain/estimate/interruptions.hpp"
#include "price_file.hpp"

namespace gputrain::app {

/// What is assumed of machines that may be taken away.
struct RentTerms {
  double interruptions_per_hour = 0.05;  // of one spot machine
  double save_seconds = 10;              // for which a save stops training
  double restart_seconds = 300;          // until a new machine trains
  int on_demand_nodes = 0;               // machines of a mix that are on demand; 0: no mix
};

struct Rent {
  std::string gpu, provider, way;  // way: "on demand", "reserved", "spot", "1 of 4 on demand"
  double dollars_per_hour = 0;     // of one GPU, averaged over a mix
  double training_seconds = 0;
  InterruptedTime time;
  double dollars = 0;  // of the whole job; all machines are paid while one is replaced
  std::string date;
};

/// Returns each way to rent each offer that fits, the cheapest first; ways that never end come last. Throws
/// Error(usage) if a mix is asked for and the GPUs are those of fewer machines.
std::vector<Rent> rents_of(const std::vector<GpuOffer>& offers, const PriceFile& prices, const RentTerms& terms);

/// Returns the rents as a table below what they assume, and the sources of the prices.
std::string rents_page(const std::vector<Rent>& rents, const PriceFile& prices, const RentTerms& terms);
nlohmann::json rents_json(const std::vector<Rent>& rents, const PriceFile& prices, const RentTerms& terms);

}  // namespace gputrain::app
