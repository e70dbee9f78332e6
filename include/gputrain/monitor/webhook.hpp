// Messages about a run to people: alerts, and how it ended.
#pragma once

#include <memory>
#include <string>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

/// Creates a sink that posts each record's text to the address, as {"text": "NAME: ..."}, for Slack, Mattermost and
/// others. A thread of its own does it, so any thread may call log(), which never waits; a failure is a warning.
std::unique_ptr<Sink> webhook_sink(const std::string& url, const std::string& name);

}  // namespace gputrain::monitor
