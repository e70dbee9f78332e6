// Whether a dataset has conversations.
#pragma once

#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Returns whether a chat template has written texts of this dataset.
bool has_conversations(const data::Dataset& dataset);

}  // namespace gputrain::records
