#include "gputrain/checkpoint/lineage.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gputrain::checkpoint {
namespace {

std::string fresh_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

Lineage Lineage::begin() { return {.branches = {{.id = fresh_id()}}}; }

Lineage Lineage::branch_off(int64_t step) const {
  Lineage next = *this;
  if (next.branches.empty()) next.branches.emplace_back();
  next.branches.back().last_step = step;
  next.branches.push_back({.id = fresh_id()});
  return next;
}

const std::string& Lineage::id() const {
  static const std::string of_the_first;
  return branches.empty() ? of_the_first : branches.back().id;
}

bool Lineage::descends_from(const Lineage& other) const {
  return id() == other.id() || std::ranges::find(branches, other.id(), &Branch::id) != branches.end();
}

bool Lineage::includes(const Lineage& of_checkpoint, int64_t step) const {
  if (branches.empty() || of_checkpoint.descends_from(*this)) return true;
  const auto branch = std::ranges::find(branches, of_checkpoint.id(), &Branch::id);
  return branch != branches.end() && step <= branch->last_step;
}

nlohmann::json json_of(const Lineage& lineage) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& branch : lineage.branches) {
    json.push_back({{"id", branch.id}});
    if (&branch != &lineage.branches.back()) json.back()["last_step"] = branch.last_step;
  }
  return json;
}

Lineage lineage_in(const nlohmann::json& json) {
  Lineage lineage;
  for (const auto& branch : json.get<std::vector<nlohmann::json>>()) {
    lineage.branches.push_back({.id = branch.at("id").get<std::string>()});
    if (branch.contains("last_step")) lineage.branches.back().last_step = branch["last_step"].get<int64_t>();
  }
  return lineage;
}

}  // namespace gputrain::checkpoint
