#include "gpu_offers.hpp"

#include <algorithm>
#include <climits>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "plan_page.hpp"

namespace gputrain::app {
namespace {

/// Returns the offer with the least value among those that fit and have one; null: none.
template <class Value>
const GpuOffer* least(const std::vector<GpuOffer>& offers, const Value& value) {
  const GpuOffer* best = nullptr;
  for (const GpuOffer& offer : offers) {
    if (!offer.fits() || !value(offer)) continue;
    if (best == nullptr || *value(offer) < *value(*best)) best = &offer;
  }
  return best;
}

const GpuOffer* cheapest(const std::vector<GpuOffer>& offers) {
  return least(offers, [](const GpuOffer& offer) { return offer.cost(); });
}

const GpuOffer* fastest(const std::vector<GpuOffer>& offers) {
  return least(offers, [](const GpuOffer& offer) { return std::optional(1 / offer.row().samples_per_second); });
}

const GpuOffer& first_counted(const std::vector<GpuOffer>& offers) {
  return *std::ranges::find_if(offers, [](const GpuOffer& offer) { return !offer.obstacle; });
}

std::string reason(const Obstacle& obstacle) {
  return obstacle.what + (obstacle.option.empty() ? "" : "; try " + obstacle.option);
}

std::string dollars(std::optional<double> value) { return value ? fmt::format("{:.2f}", *value) : ""; }

std::string conclusion(const std::vector<GpuOffer>& offers) {
  const GpuOffer *const by_cost = cheapest(offers), *const by_time = fastest(offers);
  if (by_time == nullptr) return "";
  const GpuOffer& taken = by_cost != nullptr ? *by_cost : *by_time;
  const std::string name = taken.request.rates.gpus;
  const std::string why = by_cost != nullptr
                              ? "is the cheapest that fits, with " + dollars(taken.cost()) + " dollars"
                              : "is the fastest that fits; --gpus " + name + "=PRICE_OF_AN_HOUR,... names the cheapest";
  return fmt::format("{} {}. All of this is predicted, nothing was run on a GPU.\nIts settings, for the job:\n\n{}",
                     name, why, yaml_of(taken.row().candidate));
}

/// Returns the lines of the offers, below a head. What is not counted has its reason in place of figures.
std::string rows_of(const std::vector<GpuOffer>& offers) {
  TextTable table("lrlrrrlrrrr");
  table.add({"gpus", "memory", "fits", "needs", "micro", "passes", "checkpointing",
             rate_unit(first_counted(offers).plans), "time", "dollars/h", "dollars"});
  for (const GpuOffer& offer : offers) {
    const std::string name = offer.request.rates.gpus, memory = monitor::bytes(offer.request.device_bytes);
    if (offer.obstacle) {
      table.add({name, memory, "?"});
      continue;
    }
    const PlanRow& row = offer.row();
    const bool fits = offer.fits();
    table.add({name, memory, fits ? "yes" : "no", monitor::bytes(row.bytes()), grouped(row.candidate.micro_batch),
               grouped(row.candidate.accumulation), row.candidate.checkpointing,
               fits ? rate_text(offer.plans, row) : "", fits ? monitor::duration(offer.seconds()) : "",
               dollars(offer.price), fits ? dollars(offer.cost()) : ""});
  }
  std::istringstream rows(
      table.text(monitor::Console::detect(true).columns, {"passes", "checkpointing", "micro", "memory"}));
  std::string text, line;
  for (size_t i = 0; std::getline(rows, line); ++i) {  // row 0 is the head
    const bool has_reason = i > 0 && offers[i - 1].obstacle;
    text += line + (has_reason ? "    " + reason(*offers[i - 1].obstacle) : "") + "\n";
  }
  return text;
}

}  // namespace

std::optional<double> GpuOffer::cost() const {
  if (!price) return std::nullopt;
  return *price * request.world_size * seconds() / 3600;
}

std::string offers_page(const Job& job, const std::vector<GpuOffer>& offers) {
  const GpuOffer& first = first_counted(offers);
  const ClusterRates& rates = first.request.rates;
  const std::string head = fmt::format(
      "gpus    {} of a kind; {:.0f} % of their memory are left to their context, NCCL and gaps\n"
      "memory  weights, gradients and optimizer: exact; activations: {}\n"
      "rates   published, data sheets; assumed: {:.0f} % of compute and {:.0f} % of memory traffic are reached\n"
      "time    of {}training alone, without evaluations and saves\n",
      first.request.world_size, 100 * kKeptMemory, first.plans.how_activations, 100 * rates.compute.share,
      100 * rates.memory.share, first.plans.steps == INT64_MAX ? "" : counted(first.plans.steps, "step") + " of ");
  return for_terminal(job_line(job, first.plans) + head, kLabelIndent) + "\n" + rows_of(offers) + "\n" +
         for_terminal(conclusion(offers), kTextIndent);
}

nlohmann::json offers_json(const std::vector<GpuOffer>& offers) {
  const Plans& plans = first_counted(offers).plans;
  const auto name_of = [](const GpuOffer* offer) {
    return offer != nullptr ? nlohmann::json(offer->request.rates.gpus) : nlohmann::json();
  };
  const auto number = [](std::optional<double> value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  const GpuOffer *const by_cost = cheapest(offers), *const by_time = fastest(offers);
  nlohmann::json json{{"schema", 1},
                      {"world_size", offers.front().request.world_size},
                      {"parameters", plans.parameters},
                      {"global_batch", plans.global_batch},
                      {"tokens_per_sample", plans.tokens_per_sample},
                      {"steps", plans.steps == INT64_MAX ? nlohmann::json() : nlohmann::json(plans.steps)},
                      {"activations", plans.how_activations},
                      {"gpus", nlohmann::json::array()},
                      {"cheapest", name_of(by_cost)},
                      {"fastest", name_of(by_time)}};
  for (const GpuOffer& offer : offers) {
    const bool is_counted = !offer.obstacle;
    json["gpus"].push_back({{"name", offer.request.rates.gpus},
                            {"device_memory_bytes", offer.request.device_bytes},
                            {"not_counted", is_counted ? nlohmann::json() : nlohmann::json(reason(*offer.obstacle))},
                            {"fits", is_counted ? nlohmann::json(offer.fits()) : nlohmann::json()},
                            {"plan", is_counted ? to_json(offer.row(), offer.fits()) : nlohmann::json()},
                            {"seconds", number(offer.fits() ? std::optional(offer.seconds()) : std::nullopt)},
                            {"dollars_per_hour", number(offer.price)},
                            {"dollars", number(offer.fits() ? offer.cost() : std::nullopt)}});
  }
  if (const GpuOffer* const taken = by_cost != nullptr ? by_cost : by_time; taken != nullptr)
    json["yaml"] = yaml_of(taken->row().candidate);
  return json;
}

}  // namespace gputrain::app
