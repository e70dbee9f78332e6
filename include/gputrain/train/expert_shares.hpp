// How evenly the tokens of training are spread over the experts of a model.
#pragma once

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/record.hpp"

namespace gputrain::train {

/// Returns train/expert_share_max and _min since the last call: the largest and the smallest part of a layer's choices
/// that one of its experts has, over all layers and ranks; all are 1 / experts if they are even. Empty for a model
/// without experts, and if no token was counted. Reads from the device. Every rank must call.
monitor::Metrics expert_shares(models::Model& model, comm::ProcessGroups& groups);

}  // namespace gputrain::train
