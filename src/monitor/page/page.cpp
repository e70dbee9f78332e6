#include "gputrain/monitor/page.hpp"

#include <initializer_list>
#include <string_view>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "page_parts.hpp"

namespace gputrain::monitor {
namespace {

std::string script_of(PageKind kind) {
  const auto joined = [](std::initializer_list<const char*> names) {
    std::string text;
    for (const char* name : {"parts.js", "curves.js", "chart.js"}) text += page_parts().at(name);
    for (const char* name : names) text += page_parts().at(name);
    return text;
  };
  switch (kind) {
    case PageKind::run:
      return joined({"evaluation.js", "run.js"});
    case PageKind::comparison:
      return joined({"compare.js"}) + "showComparison(DATA);\n";
    case PageKind::sweep:
      return joined({"compare.js", "sweep.js"}) + "showSweep(DATA);\n";
  }
  return {};
}

void fill(std::string& page, std::string_view place, std::string_view text) {
  const size_t at = page.find(place);
  GPUTRAIN_ASSERT(at != std::string::npos, "the page has a place for its parts");
  page.replace(at, place.size(), text);
}

}  // namespace

std::string live_page() { return page_of(PageKind::run, nullptr); }

std::string page_of(PageKind kind, const nlohmann::ordered_json& data) {
  const std::string json = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;  // a text of the run must not end the script
  safe.reserve(json.size());
  for (const char c : json) c == '<' ? safe += "\\u003c" : safe += c;
  std::string page(page_parts().at("page.html"));
  fill(page, "/*STYLE*/", page_parts().at("style.css"));
  fill(page, "/*SCRIPT*/", script_of(kind));
  fill(page, "/*DATA*/", safe);
  return page;
}

}  // namespace gputrain::monitor
