// Small jobs on data that the test creates.
#pragma once

#include <string>
#include <vector>

#include "support/program.hpp"

namespace gputrain::testing_support {

/// Writes a text of a few thousand characters with a learnable structure, and returns its path.
std::string write_text(const TemporaryFolder& folder);

/// A character GPT of one block on that text: 20 steps of 8 sequences of 16 characters, in fp64 unless changed by
/// `extra`, lines of YAML appended to the job.
std::string write_gpt_job(const TemporaryFolder& folder, const std::string& extra = "",
                          const std::string& train = "{max_steps: 20, global_batch_size: 8}");

/// The values of one metric ("train/loss") in a metrics file, one for each training step in it.
std::vector<double> values(const std::string& metrics, const std::string& name);

/// The training losses of a run, by its folder.
std::vector<double> losses_of(const std::string& run);

/// The metrics file without the values that depend on the clock.
std::string timeless_metrics(const std::string& path);

}  // namespace gputrain::testing_support
