// Page of `gputrain top` as text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::app {

struct TopSize {
  size_t columns = 80, rows = 24;
  bool colour = false;
};

struct TopPage {
  std::vector<std::string> lines;
  bool goes_on = false;  // what it shows may change
};

/// Returns at most as many lines as `size` has rows, and as wide. `state`: the run's answer at /state.
std::vector<std::string> top_page(const nlohmann::json& state, const TopSize& size);

}  // namespace gputrain::app
