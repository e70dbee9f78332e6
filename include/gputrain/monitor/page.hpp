// The page that shows a run in a browser: live, or as a report in one file. It loads nothing from elsewhere.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Asks "state" of its own server again and again.
std::string_view page_template();

/// The same page with its data inside. `state` as Board::json() gives it; "tiles" may add [name, text] to it.
std::string report_page(const nlohmann::ordered_json& state);

}  // namespace gputrain::monitor
