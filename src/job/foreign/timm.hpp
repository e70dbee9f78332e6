// Parts of a job of timm.
#pragma once

#include <string>

#include "moving.hpp"

namespace gputrain::app::foreign {

inline const std::string kTimm = "timm's default";

/// Returns the value of a key as a list on one line, though it may be one number; empty: it is not given.
std::string in_list(const Moving& job, const std::string& key);

/// Sets the model with its options.
void finish_timm_model(Moving& job);
/// Sets how images are read and changed, and the curve of the learning rate.
void finish_timm_images(Moving& job);
void finish_timm_rates(Moving& job);

}  // namespace gputrain::app::foreign
