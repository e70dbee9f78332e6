// Helpers that the families of decoders with Llama's names share.
#pragma once

#include <string>

#include "../config_json.hpp"

namespace gputrain::models {

/// Adds layers, heads, channels, positions and vocabulary. Throws Error(data) if one is missing.
void add_sizes(SpecOptions& options, const ConfigReader& reader);

/// Returns a config.json with these sizes.
nlohmann::json sizes_config(const GptSizes& sizes, const char* model_type, const char* architecture);

/// Implements PublishedFamily::parameter_of for a Gpt whose parameters have Llama's names.
std::string llama_parameter_of(const Model& model, const std::string& file_name);

}  // namespace gputrain::models
