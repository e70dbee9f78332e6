// ConvNeXt, for its published family.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// Blocks and channels of each stage.
struct ConvnextStages {
  std::vector<int64_t> blocks, channels;
};
const ConvnextStages& stages_of(const Model& convnext);

bool is_convnext(const Model& model);

/// Whether the weights of a ConvNeXt are written under timm's names instead of torchvision's.
bool is_written_for_timm(const Model& convnext);
void write_for_timm(Model& convnext, bool is_so);

}  // namespace gputrain::models
