// The filters for lists and dicts.
#pragma once

#include <vector>

#include "builtin.hpp"

namespace gputrain::chat {

const std::vector<Builtin>& sequence_filters();

}  // namespace gputrain::chat
