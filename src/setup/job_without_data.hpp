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

/// A job that has no data of its own: a model is built as for training, but there is nothing to train on.
Job job_without_data(std::vector<std::string> model, const std::vector<std::string>& set);
/// The same for the model of a published folder.
Job job_of_published(const std::filesystem::path& folder, std::vector<std::string> model,
                     const std::vector<std::string>& set);
/// What a run's job says about the model and how it computes, for weights that are the run's own.
Job job_without_data(const Job& run, const std::vector<std::string>& set);

/// The tokenizer of the run's data, if it is a published one: the copy in the run folder or, before there is one, the
/// files that the job names; else empty.
std::filesystem::path tokenizer_of_run(const Job& job, const RunFolder& run);

}  // namespace gputrain::app
