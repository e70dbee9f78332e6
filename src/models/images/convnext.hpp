// ConvNeXt, for its published family.
#pragma once

#include "gputrain/models/model.hpp"

namespace gputrain::models {

bool is_convnext(const Model& model);

}  // namespace gputrain::models
