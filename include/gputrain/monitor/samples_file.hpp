// samples.jsonl: what the model has written while it learned, a JSON line for each text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

/// Creates a sink that writes the file.
std::unique_ptr<Sink> samples_sink(const std::filesystem::path& path);

/// Returns whether the file has texts of this step; an absent file has none.
bool has_samples_of(const std::filesystem::path& path, int64_t step);

}  // namespace gputrain::monitor
