#include "gputrain/nn/unit_range.hpp"

namespace gputrain::nn {

UnitListener*& unit_listener() noexcept {
  thread_local UnitListener* listener = nullptr;
  return listener;
}

}  // namespace gputrain::nn
