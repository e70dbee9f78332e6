#include "gputrain/launch/environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

// Enough for any cluster, and small enough that arithmetic on ranks never overflows.
constexpr int kMaximumRanks = 1 << 20;

/// The variables of one launcher convention, as they stand in the environment.
class Variables {
 public:
  explicit Variables(const Lookup& lookup) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      values_.emplace_back(name, lookup(name));
    }
  }

  const std::optional<std::string>& operator[](std::string_view name) const {
    for (const auto& [known, value] : values_) {
      if (known == name) return value;
    }
    GPUTRAIN_ASSERT(false, "a variable that was not read");
  }

  /// "RANK=1 WORLD_SIZE=2 MASTER_ADDR unset": all that decide, for messages.
  std::string text() const {
    std::string all;
    for (const auto& [name, value] : values_) {
      if (!all.empty()) all += ' ';
      all += value ? name + "=" + *value : name + " unset";
    }
    return all;
  }

  int number(std::string_view name, int lowest, int highest) const {
    const std::string& value = *(*this)[name];
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < lowest || result > highest) {
      fail(std::string(name) + "=" + value + " is not a whole number from " + std::to_string(lowest) + " to " +
           std::to_string(highest));
    }
    return result;
  }

  [[noreturn]] void fail(std::string what) const {
    throw Error(ExitCode::usage,
                {.what = std::move(what),
                 .where = "environment",
                 .hint = "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT together, or none of them to train "
                         "alone; now " +
                         text()});
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> values_;
};

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

void check_complete(const Variables& variables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (!variables[name] || variables[name]->empty()) {
      variables.fail(std::string("the environment names a rank of many, but ") + name + " is " +
                     (variables[name] ? "empty" : "unset"));
    }
  }
}

// Without LOCAL_*, ranks that meet on the loopback are all on this host; others have a host each.
void read_local(const Variables& variables, comm::Rendezvous& at) {
  if (variables["LOCAL_RANK"].has_value() != variables["LOCAL_WORLD_SIZE"].has_value()) {
    if (!variables["LOCAL_RANK"]) variables.fail("LOCAL_WORLD_SIZE is set, but LOCAL_RANK is not");
  }
  const bool one_host = is_loopback(at.master_address);
  at.local_world_size = one_host ? at.world_size : 1;
  at.local_rank = one_host ? at.rank : 0;
  if (variables["LOCAL_RANK"]) at.local_rank = variables.number("LOCAL_RANK", 0, at.world_size - 1);
  if (variables["LOCAL_WORLD_SIZE"])
    at.local_world_size = variables.number("LOCAL_WORLD_SIZE", 1, at.world_size);
  else
    at.local_world_size = std::max(at.local_world_size, at.local_rank + 1);
  if (at.local_rank >= at.local_world_size) {
    variables.fail("LOCAL_RANK=" + std::to_string(at.local_rank) +
                   " is not below LOCAL_WORLD_SIZE=" + std::to_string(at.local_world_size));
  }
  if (at.local_rank > at.rank) {
    variables.fail("LOCAL_RANK=" + std::to_string(at.local_rank) + " is above RANK=" + std::to_string(at.rank));
  }
}

}  // namespace

Launch read_environment(const Lookup& lookup) {
  const Variables variables(lookup);
  // MASTER_ADDR and MASTER_PORT alone are often left over in a shell profile; a rank is what makes us one of many.
  const bool alone =
      !variables["RANK"] && !variables["WORLD_SIZE"] && !variables["LOCAL_RANK"] && !variables["LOCAL_WORLD_SIZE"];
  if (alone) return {.launcher = "alone"};

  check_complete(variables);
  comm::Rendezvous at;
  at.world_size = variables.number("WORLD_SIZE", 1, kMaximumRanks);
  if (variables.number("RANK", 0, kMaximumRanks) >= at.world_size) {
    variables.fail("RANK=" + *variables["RANK"] + " is not below WORLD_SIZE=" + *variables["WORLD_SIZE"]);
  }
  at.rank = variables.number("RANK", 0, at.world_size - 1);
  at.master_address = *variables["MASTER_ADDR"];
  at.master_port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
  read_local(variables, at);
  // torchrun's agent keeps its store open for its workers: then rank 0 must not try to serve one on the same port.
  at.store_is_running = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  at.attempt = lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return {.launcher = lookup("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment", .rendezvous = std::move(at)};
}

Launch read_environment() {
  return read_environment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace gputrain::launch
