#include "gputrain/nn/unit_range.hpp"

namespace gputrain::nn {

UnitListener*& unit_listener() noexcept {
  thread_local UnitListener* listener = nullptr;
  return listener;
}

UnitMemory*& unit_memory() noexcept {
  static UnitMemory* memory = nullptr;
  return memory;
}

}  // namespace gputrain::nn
