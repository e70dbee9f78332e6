// Input and output of a job's model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Returns the input and the target of the job's model and task.
InputSpec model_of(const Job& job);
/// Returns the target that the model gives. Of two models that learn from pairs of answers, one continues texts, and
/// the other judges answers.
Target given_by(const Job& job);

/// Returns the signature that a run writes as its model.json.
data::Signature signature_of(const Job& job, const JobDatasets& datasets);

/// Returns the same as open_datasets(job), for data without samples, and without a task.
JobDatasets datasets_without_samples(const Job& job, const data::Signature& signature);

/// Writes facts about images into the metadata of weights, for users of the file alone; nothing for other data.
void note_images(const data::Dataset& learned, checkpoint::Metadata& metadata);
/// Reads these facts; empty: the metadata has none.
std::optional<data::Signature> images_in(const checkpoint::Metadata& metadata);

}  // namespace gputrain::app
