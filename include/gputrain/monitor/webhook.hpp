// Tells people of a run: alerts, and how it ended.
#pragma once

#include <memory>
#include <string>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

/// Posts each record's text to the address, as {"text": "NAME: ..."}, which Slack, Mattermost and others take. A thread
/// of its own does it, so that log() may be called by any thread and never waits; what is not taken is a warning.
std::unique_ptr<Sink> webhook_sink(const std::string& url, const std::string& name);

}  // namespace gputrain::monitor
