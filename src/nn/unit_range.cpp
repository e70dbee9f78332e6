#include "gputrain/nn/unit_range.hpp"

#include <utility>

#include "gputrain/nn/module.hpp"

namespace gputrain::nn {
namespace {

thread_local UnitMemory* entered = nullptr;

}  // namespace

UnitMemory::~UnitMemory() {
  if (entered == this) entered = nullptr;
}

void enter_unit(const Module& module) {
  entered = module.unit_memory();
  if (entered != nullptr) entered->enter(module);
}

void borrow_weights(const Module& module) {
  if (module.unit_memory() != nullptr) module.unit_memory()->borrow(module);
}

UnitMemory* entered_memory() noexcept { return entered; }

EnteredAgain::EnteredAgain(UnitMemory* memory) : before_(std::exchange(entered, memory)) {}

EnteredAgain::~EnteredAgain() { entered = before_; }

UnitListener*& unit_listener() noexcept {
  thread_local UnitListener* listener = nullptr;
  return listener;
}

}  // namespace gputrain::nn
