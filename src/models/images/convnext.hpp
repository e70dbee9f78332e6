// ConvNeXt, as its published family knows it.
#pragma once

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// Whether this is a ConvNeXt of any size.
bool is_convnext(const Model& model);

}  // namespace gputrain::models
