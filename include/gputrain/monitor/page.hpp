// Page that shows a run in a browser: live, or as a report in one file. It loads nothing from elsewhere.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Returns the page, which polls "state" of its own server.
std::string_view page_template();

/// Returns the page with its data inside. `state` as in Board::json(); "tiles" may add [name, text] to it.
std::string report_page(const nlohmann::ordered_json& state);

}  // namespace gputrain::monitor
