// Handles exceptions of Gloo that nobody can catch.
#pragma once

#include <memory>

#include "detector/failure_detector.hpp"

namespace gputrain::comm {

/// Makes the process survive failures of Gloo. If ranks call a collective with different sizes, Gloo throws on its own
/// thread, where nothing catches it: SIGABRT would end the process. From now on that thread blocks forever instead, and
/// the failure is reported to the watch.
void survive_gloo_failures(const std::shared_ptr<FailureDetector>& detector);

}  // namespace gputrain::comm
