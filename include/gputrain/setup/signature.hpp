// What a job's model reads and gives.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// What the job's model and task read and give.
InputSpec model_of(const Job& job);
/// Returns what the model gives. Of two that learn from pairs of answers, one continues texts, and the other judges
/// answers.
Target given_by(const Job& job);

/// What a run writes as its model.json.
data::Signature signature_of(const Job& job, const JobDatasets& datasets);

/// The same as open_datasets(job) gives, of data without samples, and without a task.
JobDatasets datasets_without_samples(const Job& job, const data::Signature& signature);

/// Images in the metadata of weights, for whoever has the file alone. `note` writes nothing for other data.
void note_images(const data::Dataset& learned, checkpoint::Metadata& metadata);
/// Empty: the metadata does not say.
std::optional<data::Signature> images_in(const checkpoint::Metadata& metadata);

}  // namespace gputrain::app
