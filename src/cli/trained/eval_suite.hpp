// Command `gputrain eval --suite`: evaluates a language model on a file of questions and texts.
#pragma once

#include "../commands.hpp"

namespace gputrain::app {

/// Evaluates the suite. Every rank must call it.
int eval_suite(const EvalRequest& request);

}  // namespace gputrain::app
