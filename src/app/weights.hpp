// Weights on disk under the ecosystem's names.
#pragma once

#include <filesystem>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"
#include "run_folder.hpp"

namespace gputrain::app {

/// The live parameters and buffers, detached.
checkpoint::NamedTensors named_weights(models::Model& model);

/// Throws Error(data) where load_weights() would find no file. What depends on the weights' config.json goes wrong in
/// other words without one, so that this is asked first.
void check_there_are_weights(const std::filesystem::path& path);

/// Fills the model from a safetensors file, or from the model.safetensors of a folder. Throws Error(data) with
/// everything that is missing, unexpected or of another shape. Returns the classes of a last layer that was left out.
int64_t load_weights(models::Model& model, const std::filesystem::path& path,
                     models::OtherClasses other_classes = models::OtherClasses::refused);

/// Writes named_weights() as model.safetensors, and the ecosystem's config.json where it has one.
void write_weights(models::Model& model, const RunFolder& folder);

}  // namespace gputrain::app
