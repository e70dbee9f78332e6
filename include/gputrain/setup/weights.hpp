// Weights on disk under the ecosystem's names.
#pragma once

#include <filesystem>
#include <string>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::app {

/// The live parameters and buffers, detached.
checkpoint::NamedTensors named_weights(models::Model& model);
/// Of them what training changes: trainable parameters and buffers.
checkpoint::NamedTensors trained_weights(models::Model& model);
/// Of them the frozen parameters.
checkpoint::NamedTensors frozen_weights(models::Model& model);

/// Throws Error(data) where load_weights() would find no file. What depends on the weights' config.json goes wrong in
/// other words without one, so that this is asked first.
void check_there_are_weights(const std::filesystem::path& path);

/// Fills the model from a safetensors file, or from the model.safetensors of a folder; a checkpoint's frozen weights
/// belong to it. Throws Error(data) with
/// everything that is missing, unexpected or of another shape. Returns the classes of a last layer that was left out.
int64_t load_weights(models::Model& model, const std::filesystem::path& path,
                     models::OtherClasses other_classes = models::OtherClasses::refused);

/// Where the weights say that they were trained for other classes or characters, though as many: the first of them, as
/// `3 is "cat" to these weights and "dog" in this data`. Empty where they are the same, or the file does not say.
std::string other_targets(const std::filesystem::path& path, const data::Dataset& dataset);

/// Writes named_weights() as model.safetensors, with the names of what was learned in its metadata, and the ecosystem's
/// config.json where it has one.
void write_weights(models::Model& model, const data::Dataset& learned, const RunFolder& folder);

}  // namespace gputrain::app
