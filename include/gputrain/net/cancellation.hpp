// Ends what another thread waits for.
#pragma once

#include "gputrain/core/descriptor.hpp"

namespace gputrain::net {

/// Lets another thread end a wait at once; later waits end at once too.
class Cancellation {
 public:
  Cancellation();  // throws Error(environment) when the process has no descriptor left

  void cancel() noexcept;
  /// Waits for this time; returns true as soon as it is cancelled.
  bool wait(double seconds) const;
  int descriptor() const noexcept { return descriptor_.get(); }  // readable once cancelled

 private:
  Descriptor descriptor_;
};

}  // namespace gputrain::net
