// Weights that have memory only while their unit computes, because ranks share them out.
//
// A forward pass says which unit it enters (UnitRange). The backward pass need not: a weight that autograd has saved
// asks for its unit when it is used.
#pragma once

#include <cstdint>

#include <c10/core/StorageImpl.h>

namespace gputrain::nn {

class Module;

class UnitMemory {
 public:
  virtual ~UnitMemory();

  /// Says that a forward pass enters the unit of `module`. Its weights have memory when this returns, until another
  /// unit is entered or, in the backward pass, its gradients are complete.
  virtual void enter(const Module& module) = 0;
  /// Says that the unit entered last also reads weights of the unit of `module`, such as tied ones.
  virtual void borrow(const Module& module) = 0;
  /// Returns the unit entered last, or -1.
  virtual int64_t current() const = 0;
  /// Returns the unit whose weights lie in this memory, or -1.
  virtual int64_t unit_of(const c10::StorageImpl* storage) const = 0;
  /// Gives weights of this unit memory, because the backward pass is about to read them.
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
