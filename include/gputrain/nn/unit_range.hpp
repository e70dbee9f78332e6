// Says which unit of a model computes its forward pass: to the memory of shared-out weights, and to a profiler. Costs
// two comparisons while nobody listens.
#pragma once

#include "gputrain/nn/unit_memory.hpp"

namespace gputrain::nn {

class UnitListener {
 public:
  virtual ~UnitListener() = default;
  /// Says that a forward pass enters a unit. `module`: a module of the unit (models::Unit).
  virtual void enter(const Module& module) = 0;
  virtual void leave() = 0;
};

/// Returns the listener that is told of this thread's forward passes; null: nobody.
UnitListener*& unit_listener() noexcept;

/// A unit's forward pass, from construction to destruction.
class UnitRange {
 public:
  explicit UnitRange(const Module& module) : listener_(unit_listener()) {
    enter_unit(module);
    if (listener_ != nullptr) listener_->enter(module);
  }
  UnitRange(const UnitRange&) = delete;
  UnitRange& operator=(const UnitRange&) = delete;
  ~UnitRange() {
    if (listener_ != nullptr) listener_->leave();
  }

 private:
  UnitListener* listener_;
};

}  // namespace gputrain::nn
