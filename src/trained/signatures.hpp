// Signatures of trained models, from the files beside them.
#pragma once

#include <filesystem>
#include <optional>

#include "gputrain/data/signature.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::trained {

struct RunSignature {
  data::Signature signature;
  std::optional<app::JobDatasets> training_data = {};  // open data, if it was needed
};

/// Returns the signature of a run: its model.json. For runs of versions that wrote none: the images in the metadata of
/// `weights`, or the texts by config.json or a published tokenizer; else opens the training data. Throws Error(data).
RunSignature signature_of_run(const app::Job& job, const std::filesystem::path& weights);

/// Returns the signature of a published model by its config.json; `job` names the model. Throws Error(data).
data::Signature signature_of_published(const app::Job& job, const std::filesystem::path& config);

/// Returns the tokenizer of the run's data, if it is a published one: the copy in the run folder or, before there is
/// one, the files that the job names; else empty.
std::filesystem::path tokenizer_of_run(const app::Job& job, const app::RunFolder& run);

}  // namespace gputrain::trained
