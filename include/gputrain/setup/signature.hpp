// What the model in a folder reads and gives, without opening it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// How a trained model is opened, and by which verbs.
enum class ModelKind { text_encoder, language_model, other };

/// Of a run, one of its checkpoints, or a published model's folder. A folder that is neither, or not there, is taken
/// for a language model, whose opener says what is wrong with it.
ModelKind kind_of(const std::filesystem::path& folder);

/// Whether the job's model is an encoder of texts, whatever its task.
bool is_encoder(const Job& job);

/// What the job's model and task read and give.
InputSpec model_of(const Job& job);

/// What a run writes as its model.json.
data::Signature signature_of(const Job& job, const JobDatasets& datasets);

/// The signature of a run: its model.json. For runs of versions that wrote none: what the metadata of `weights` says of
/// images, or config.json or a published tokenizer of texts; else opens the training data. Throws Error(data).
data::Signature signature_of_run(const Job& job, const std::filesystem::path& weights);

/// The signature of published texts, as config.json says it. Throws Error.
data::Signature signature_in(const std::filesystem::path& config);

/// The same as open_datasets(job) gives, of data without samples, and without a task.
JobDatasets datasets_without_samples(const Job& job, const data::Signature& signature);

/// Images in the metadata of weights, for whoever has the file alone. `note` writes nothing for other data.
void note_images(const data::Dataset& learned, checkpoint::Metadata& metadata);
/// Empty: the metadata does not say.
std::optional<data::Signature> images_in(const checkpoint::Metadata& metadata);

}  // namespace gputrain::app
