// Library libgputrain.so with everything that needs LibTorch, which takes 0.2 s and 100 MB to load.
#pragma once

#include "commands.hpp"

namespace gputrain::app {

/// Loads the library at the first call. Throws Error(environment).
const Verbs& library();

}  // namespace gputrain::app
