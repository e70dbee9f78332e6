// libgputrain.so: everything that needs LibTorch, which takes 0.2 s and 100 MB to come up.
#pragma once

#include "gputrain/job/commands.hpp"

namespace gputrain::app {

/// Opens it at the first call. Throws Error(environment).
const Verbs& library();

}  // namespace gputrain::app
