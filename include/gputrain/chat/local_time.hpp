// The time that chat templates take for the present.
#pragma once

#include <ctime>
#include <optional>
#include <string>

namespace gputrain::chat {

/// The key under which a run's ledger has the time of each attempt.
inline constexpr const char* kLocalTime = "local_time";

/// Returns the local time: the clock's or, after set_local_time(), the time set.
std::tm local_time();

/// Sets the time of strftime_now() in all templates, so that a resumed run has the texts that it began with.
void set_local_time(const std::tm& time);

/// Convert to "2026-11-28T14:05:09" and back; none: another text.
std::string text_of(const std::tm& time);
std::optional<std::tm> local_time_from(const std::string& text);

}  // namespace gputrain::chat
