#include "variables.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "gputrain/core/error.hpp"
#include "host_name.hpp"

namespace gputrain::launch {
namespace {

constexpr std::array kShownAlways{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
constexpr std::array kShownWhenSet{"LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "GROUP_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_RANK",
                                   "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_RANK",
                                   "OMPI_COMM_WORLD_LOCAL_SIZE",
                                   "PMI_RANK",
                                   "PMI_SIZE",
                                   "PMI_LOCAL_RANK",
                                   "PMI_LOCAL_SIZE",
                                   "MPI_LOCALRANKID",
                                   "MPI_LOCALNRANKS",
                                   "PMIX_RANK",
                                   "SLURM_JOB_ID",
                                   "SLURM_STEP_ID",
                                   "SLURM_PROCID",
                                   "SLURM_NTASKS",
                                   "SLURM_STEP_NUM_TASKS",
                                   "SLURM_LOCALID",
                                   "SLURM_NODEID",
                                   "SLURM_STEP_TASKS_PER_NODE",
                                   "SLURM_STEP_NODELIST",
                                   "SLURM_JOB_NODELIST",
                                   "PET_NNODES",
                                   "PET_NODE_RANK",
                                   "PET_NPROC_PER_NODE",
                                   "PET_MASTER_ADDR",
                                   "PET_MASTER_PORT",
                                   "SKYPILOT_NODE_RANK",
                                   "SKYPILOT_NUM_NODES",
                                   "SKYPILOT_NODE_IPS",
                                   "SKYPILOT_NUM_GPUS_PER_NODE",
                                   "DSTACK_NODE_RANK",
                                   "DSTACK_NODES_NUM",
                                   "DSTACK_MASTER_NODE_IP",
                                   "DSTACK_NODES_IPS",
                                   "DSTACK_GPUS_PER_NODE"};

bool is_plain(std::string_view text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:%[](),") ==
             std::string_view::npos &&
         text.size() <= 80;
}

template <class Value>
bool parse(const std::string& text, Value& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string assignment(const std::string& name, const std::string& value) {
  return name + "=" + (is_plain(value) ? value : in_quotes(value));
}

}  // namespace

std::optional<Number> Variables::number(const char* name, int lowest, int highest) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int result = 0;
  if (!parse(*value, result) || result < lowest || result > highest) {
    refuse_number(name, *value, "from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return Number{name, result};
}

std::optional<Number> Variables::number(std::initializer_list<const char*> names, int lowest, int highest) const {
  for (const char* name : names) {
    if (has(name)) return number(name, lowest, highest);
  }
  return std::nullopt;
}

std::optional<uint64_t> Variables::large_number(const char* name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  uint64_t result = 0;
  if (!parse(*value, result)) refuse_number(name, *value, "of 64 bits");
  return result;
}

void Variables::refuse_number(const char* name, const std::string& value, const std::string& bounds) const {
  fail(assignment(name, value) + " is not a whole number " + bounds);
}

void Variables::fail(std::string what, std::string hint) const {
  if (hint.empty()) hint = "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT together, or none of them to train alone";
  throw Error(ExitCode::usage,
              {.what = std::move(what), .where = "environment", .hint = std::move(hint) + "; now " + all()});
}

std::string Variables::all() const {
  std::string all;
  const auto add = [&all](const std::string& one) { all += (all.empty() ? "" : " ") + one; };
  for (const char* name : kShownAlways) {
    const auto value = text(name);
    add(value ? assignment(name, *value) : std::string(name) + " unset");
  }
  for (const char* name : kShownWhenSet) {
    if (const auto value = text(name)) add(assignment(name, *value));
  }
  return all;
}

}  // namespace gputrain::launch
