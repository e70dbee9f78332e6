// The event files of TensorBoard: a sequence of records with checksums, each an Event as a protocol buffer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "gputrain/monitor/record.hpp"
#include "gputrain/monitor/sink.hpp"
#include "protobuf.hpp"

namespace gputrain::monitor::events {

/// The first record of a file.
std::string header();
/// Tells a TensorBoard that shows the run already to forget what it has read about this step and later ones. The first
/// file of a run has it too: TensorBoard takes no notice of the first that it reads.
std::string start(int64_t step);
/// Metrics as scalars, histograms, and as texts the message of an event and what the model writes.
std::string of(const Record& record);
/// What the tab HParams compares: settings that are numbers, bools or texts.
std::string session_start(const std::map<std::string, std::string>& settings, const std::string& name);
std::string session_end(bool is_success);

/// Moves the events about steps after `step` and evaluations after `evaluated_step`, and a last record that is not
/// whole, to the end of `left`. Throws Error(environment) on a disk error.
void truncate_file(const std::filesystem::path& path, const std::filesystem::path& left, int64_t step,
                   int64_t evaluated_step);

}  // namespace gputrain::monitor::events
