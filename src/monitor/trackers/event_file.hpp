// Event files of TensorBoard: a sequence of records with checksums, each an Event as a protocol buffer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "gputrain/core/protobuf.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor::events {

/// Returns the first record of a file.
std::string header();
/// Returns a record that tells a running TensorBoard to forget what it has read about this step and later ones. The
/// first file of a run has it too: TensorBoard ignores the first one that it reads.
std::string start(int64_t step);
/// Returns metrics as scalars, as texts the message of an event and the model's texts, and pictures as images with
/// their captions as texts.
std::string of(const Record& record);
/// Returns the settings for the tab HParams: those that are numbers, bools or texts.
std::string session_start(const std::map<std::string, std::string>& settings, const std::string& name);
std::string session_end(bool is_success);

/// Moves the events about steps after `step` and evaluations after `evaluated_step`, and an incomplete last record, to
/// the end of `left`. Throws Error(environment) on a disk error.
void truncate_file(const std::filesystem::path& path, const std::filesystem::path& left, int64_t step,
                   int64_t evaluated_step);

}  // namespace gputrain::monitor::events
