// ConvNeXt, for its published family.
#pragma once

#include "gputrain/models/model.hpp"

namespace gputrain::models {

bool is_convnext(const Model& model);

/// Whether the weights of a ConvNeXt are written under timm's names instead of torchvision's.
bool is_written_for_timm(const Model& convnext);
void write_for_timm(Model& convnext, bool is_so);

}  // namespace gputrain::models
