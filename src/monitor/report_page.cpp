#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/monitor/page.hpp"

namespace gputrain::monitor {

std::string report_page(const nlohmann::ordered_json& state) {
  constexpr std::string_view kEmpty = "const REPORT = null;";
  std::string data = state.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // A text of the run must not end the script.
  for (size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
  std::string page(page_template());
  const size_t at = page.find(kEmpty);
  GPUTRAIN_ASSERT(at != std::string::npos, "the page has a place for its data");
  return page.replace(at, kEmpty.size(), "const REPORT = " + data + ";");
}

}  // namespace gputrain::monitor
