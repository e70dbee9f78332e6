// Reads what `run --profile` wrote: what cost most, and what to try.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

/// Where a step's time goes.
struct ProfileItem {
  std::string name;
  double seconds = 0;  // of a step
  double share = 0;    // of a step
  double calls = 0;    // in a step
};

/// The ten that cost most: kernels of a GPU, if there was one; otherwise operators, and what the loop does between
/// them. Throws nlohmann::json::exception.
std::vector<ProfileItem> top_of_profile(const nlohmann::json& summary);

/// One sentence for each thing that the numbers show, the most expensive first: what, how much, which key to change.
std::vector<std::string> profile_advice(const nlohmann::json& summary);

}  // namespace gputrain::app
