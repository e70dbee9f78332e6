// What Gloo cannot tell by an exception that anyone could catch.
#pragma once

#include <memory>

#include "watch.hpp"

namespace gputrain::comm {

/// Ranks that call a collective with different sizes make Gloo throw on a thread of its own, where nobody catches: that
/// would end the process by SIGABRT. From now on that thread stands still instead, and the watch is told.
void survive_gloo_failures(const std::shared_ptr<Watch>& watch);

}  // namespace gputrain::comm
