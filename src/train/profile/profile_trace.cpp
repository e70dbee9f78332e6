#include "profile_trace.hpp"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gputrain::train {
namespace {

const char* category_of(ProfiledEvent::Kind kind) {
  switch (kind) {
    case ProfiledEvent::Kind::op:
      return "operator";
    case ProfiledEvent::Kind::backward:
      return "backward";
    case ProfiledEvent::Kind::range:
      return "range";
    case ProfiledEvent::Kind::unit:
      return "unit";
    case ProfiledEvent::Kind::device:
      return "device";
  }
  return "";
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string metadata(const char* what, int rank, uint64_t track, const std::string& arguments) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}},)", what, rank, track, arguments) +
         "\n";
}

/// Microseconds with all three digits of the nanoseconds.
std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", std::abs(nanoseconds) / 1000,
                     std::abs(nanoseconds) % 1000);
}

std::string arguments_of(const ProfiledEvent& event) {
  std::string text;
  if (!event.shapes.empty()) text = R"("shapes":)" + quoted(event.shapes);
  if (event.flops > 0) text += fmt::format(R"({}"flops":{:.0f})", text.empty() ? "" : ",", event.flops);
  return text;
}

}  // namespace

std::string trace_text(const std::vector<ProfiledEvent>& events, const TraceFacts& facts) {
  std::string text = fmt::format(
      R"({{"displayTimeUnit":"ms","baseTimeNanoseconds":{},"rank":{},"host":{},"clock_ahead_ns":{},"traceEvents":[)",
      facts.base_ns, facts.rank, quoted(facts.host), facts.clock_ahead_ns);
  text += "\n";
  text += metadata("process_name", facts.rank, 0, fmt::format(R"("name":"rank {}")", facts.rank));
  text += metadata("process_labels", facts.rank, 0, R"("labels":)" + quoted(facts.host));
  text += metadata("process_sort_index", facts.rank, 0, fmt::format(R"("sort_index":{})", facts.rank));
  for (const auto& [track, name] : facts.tracks)
    text += metadata("thread_name", facts.rank, track, R"("name":)" + quoted(name));
  for (const ProfiledEvent& event : events) {
    text += fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}},)",
                        quoted(event.name), category_of(event.kind), facts.rank, event.track,
                        microseconds(event.begin_ns - facts.clock_ahead_ns - facts.base_ns),
                        microseconds(event.end_ns - event.begin_ns), arguments_of(event));
    text += "\n";
  }
  text.erase(text.find_last_of(','), 1);
  return text + "]}\n";
}

}  // namespace gputrain::train
