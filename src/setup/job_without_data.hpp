// Jobs that only say what a trained model is and how it computes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/job/job.hpp"
#include "gputrain/job/run_folder.hpp"

namespace gputrain::app {

/// Quoted for YAML.
std::string quoted(const std::string& text);

/// The value of a key of the job; empty: it has no such key.
std::string setting_of(const Job& job, const std::string& key);

/// A job on made-up data of this vocabulary: a model is built as for training, but there is nothing to train on.
Job job_without_data(std::vector<std::string> model, int64_t vocabulary, const std::vector<std::string>& set);

/// The tokenizer of the run's data, if it is a published one: the copy in the run folder or, before there is one, the
/// files that the job names; else empty.
std::filesystem::path tokenizer_of_run(const Job& job, const RunFolder& run);

}  // namespace gputrain::app
