// Pages for a browser, each one file that loads nothing from elsewhere: a run, a comparison of runs, a sweep.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Kind of a page. Its script in src/monitor/page says what its data is.
enum class PageKind { run, comparison, sweep };

/// Returns the page of a run that goes on, which polls "state" of its own server.
std::string live_page();

/// Returns a page with its data inside. That of a run is Board::json(), with "curves" instead of points;
/// "tiles" may add [name, text] to it.
std::string page_of(PageKind kind, const nlohmann::ordered_json& data);

}  // namespace gputrain::monitor
