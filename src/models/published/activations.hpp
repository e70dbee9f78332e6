// Activations of feed-forward layers without a gate, as transformers names them.
#pragma once

#include "config_json.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {

/// Returns our name for the activation at `key`. Throws Error(data) for one that we do not compute.
const char* activation_option(const ConfigReader& reader, const char* key, const char* fallback);

const char* activation_function(ops::Activation activation);

}  // namespace gputrain::models
