// What chat templates take for today.
#pragma once

#include <ctime>
#include <optional>
#include <string>

namespace gputrain::chat {

/// The key of a run's ledger under which each attempt has it.
inline constexpr const char* kLocalTime = "local_time";

/// The local time: the clock's or, once there is one, that of set_local_time().
std::tm local_time();

/// From now on strftime_now() of all templates writes this time: a run that goes on has the texts that it began with.
void set_local_time(const std::tm& time);

/// "2026-11-28T14:05:09" and back; none: another text.
std::string text_of(const std::tm& time);
std::optional<std::tm> local_time_from(const std::string& text);

}  // namespace gputrain::chat
