// What weights say of the data that they were trained on: in their metadata, and in files beside them.
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/models/published.hpp"

namespace gputrain::app {

/// Describes the numbers of the targets, and the images that the model has seen.
checkpoint::Metadata metadata_of(const data::Dataset& learned);

/// Returns the config.json beside weights; null: there is none that can be read.
nlohmann::json config_beside(const std::filesystem::path& path);
/// Returns how images are read for these weights by timm, or else by transformers' preprocessor_config.json.
models::PublishedImages published_images_beside(const std::filesystem::path& path);

}  // namespace gputrain::app
