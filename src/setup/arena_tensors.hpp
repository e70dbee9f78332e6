// Parameters of a model as the arena takes them: which are trained, and with what settings.
#pragma once

#include <vector>

#include "gputrain/device/arena.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::app {

/// Freezes the parameters that model.freeze names. Throws config::SpecError for a pattern that matches no parameter,
/// and if nothing is left to train.
void freeze_parameters(const Job& job, models::Model& model);

/// Returns every parameter once, in unit order, with its full name, and the settings of optimizer.groups and
/// layer_decay. Throws config::SpecError for a pattern that matches no parameter.
std::vector<device::ArenaTensor> arena_tensors_of(const Job& job, models::Model& model);

}  // namespace gputrain::app
