// Reads what a launcher says in the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, as torchrun and most schedulers set them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::launch {

struct Launch {
  std::string launcher;  // "alone", "torchrun", "environment"
  comm::Rendezvous rendezvous;
};

/// How a variable is looked up: absent or its value.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// None of the variables set: alone. Throws Error(usage), showing the values, when they are half-set, not numbers, out
/// of range, or contradict each other.
Launch read_environment(const Lookup& lookup);
Launch read_environment();  // of this process

}  // namespace gputrain::launch
