// Weights that have memory only while their unit computes, because ranks share them out.
//
// A forward pass says which unit it enters (UnitRange). The backward pass needs no saying: what autograd saved of such
// weights asks for its unit when it is used.
#pragma once

#include <cstdint>

#include <c10/core/StorageImpl.h>

namespace gputrain::nn {

class Module;

class UnitMemory {
 public:
  virtual ~UnitMemory() = default;

  /// A forward pass enters the unit of `module`: its weights have memory when this returns, and until another unit is
  /// entered or, in the backward pass, its gradients are complete.
  virtual void enter(const Module& module) = 0;
  /// The unit entered last also reads weights of the unit of `module`, such as tied ones.
  virtual void borrow(const Module& module) = 0;
  /// The unit entered last, or -1.
  virtual int64_t current() const = 0;
  /// The unit whose weights lie in this memory, or -1.
  virtual int64_t unit_of(const c10::StorageImpl* storage) const = 0;
  /// The backward pass is about to read weights of this unit: they have memory when this returns.
  virtual void need(int64_t unit) = 0;
};

/// Of the model that this process trains; null: all weights have memory all the time.
UnitMemory*& unit_memory() noexcept;

/// Call it before the head of a unit reads weights of another unit.
inline void borrow_weights(const Module& module) {
  if (unit_memory() != nullptr) unit_memory()->borrow(module);
}

}  // namespace gputrain::nn
