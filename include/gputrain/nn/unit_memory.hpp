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
  virtual ~UnitMemory();

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

/// Calls enter() of the module's memory, if it has one (Module::unit_memory).
void enter_unit(const Module& module);
/// Call it before the head of a unit reads weights of another unit.
void borrow_weights(const Module& module);

/// The memory of the unit that this thread entered last; null: its weights have memory all the time.
UnitMemory* entered_memory() noexcept;

/// Makes `memory` that of the unit entered last, as a block that is run again needs it, until it is destroyed.
class EnteredAgain {
 public:
  explicit EnteredAgain(UnitMemory* memory);
  EnteredAgain(const EnteredAgain&) = delete;
  EnteredAgain& operator=(const EnteredAgain&) = delete;
  ~EnteredAgain();

 private:
  UnitMemory* before_;
};

}  // namespace gputrain::nn
