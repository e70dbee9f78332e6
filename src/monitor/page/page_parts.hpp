// Files of which pages are made, as strings.
#pragma once

#include <map>
#include <string_view>

namespace gputrain::monitor {

/// Returns the texts of the files in src/monitor/page by their names: "chart.js".
const std::map<std::string_view, std::string_view>& page_parts();

}  // namespace gputrain::monitor
