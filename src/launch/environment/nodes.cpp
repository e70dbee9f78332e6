#include "gputrain/launch/nodes.hpp"

#include <cstdlib>
#include <sstream>
#include <utility>

#include "host_name.hpp"
#include "launcher_env.hpp"

namespace gputrain::launch {
namespace {

constexpr uint16_t kPortOfNodes = 29500;  // torchrun's default
constexpr int kMostRanksOfANode = 4096;

/// The facts that one scheduler gives.
struct SchedulerEnv {
  std::string scheduler, name_of_node, name_of_nodes;  // and the names of its variables
  std::optional<Number> node, nodes, ranks;
  std::string address, name_of_address;  // node 0's
  std::optional<uint16_t> port;
  std::string job;
};

[[noreturn]] void refuse(const Variables& variables, std::string what) {
  variables.fail(
      std::move(what),
      "a scheduler that starts `gputrain launch` on each node must set all its variables on every node; to start "
      "the ranks from this node alone, unset them or give --hosts");
}

std::vector<std::string> lines_of(const Variables& variables, const char* name) {
  std::vector<std::string> lines;
  std::istringstream words(variables.text(name).value_or(""));
  for (std::string word; words >> word;) lines.push_back(word);
  return lines;
}

std::optional<Number> count_of(const Variables& variables, const char* name, int lowest) {
  return variables.number(name, lowest, lowest == 0 ? kMaximumRanks - 1 : kMaximumRanks);
}

/// GPUs of a node, one per rank; 0 counts as not said.
std::optional<Number> gpus_of(const Variables& variables, const char* name) {
  auto gpus = variables.number(name, 0, kMostRanksOfANode);
  return gpus && gpus->value == 0 ? std::nullopt : gpus;
}

std::optional<Number> ranks_of_torchrun(const Variables& variables) {
  constexpr const char* kName = "PET_NPROC_PER_NODE";
  const auto text = variables.text(kName);
  if (!text || *text == "auto" || *text == "gpu") return std::nullopt;
  return variables.number(kName, 1, kMostRanksOfANode);
}

std::optional<Number> nodes_of_torchrun(const Variables& variables) {
  constexpr const char* kName = "PET_NNODES";
  const auto text = variables.text(kName);
  if (text && text->find(':') != std::string::npos) {
    refuse(variables, std::string(kName) + "=" + in_quotes(*text) +
                          " is a range, but `gputrain launch` needs the number of nodes here; give the range as "
                          "--nnodes MIN:MAX");
  }
  return count_of(variables, kName, 1);
}

std::optional<SchedulerEnv> torchrun_node(const Variables& variables) {
  if (!variables.has("PET_NNODES") && !variables.has("PET_NODE_RANK") && !variables.has("PET_NPROC_PER_NODE"))
    return std::nullopt;
  SchedulerEnv env{.scheduler = "torchrun's variables", .name_of_node = "PET_NODE_RANK", .name_of_nodes = "PET_NNODES"};
  env.node = count_of(variables, "PET_NODE_RANK", 0);
  env.nodes = nodes_of_torchrun(variables);
  env.ranks = ranks_of_torchrun(variables);
  env.name_of_address = "PET_MASTER_ADDR";
  env.address = variables.text("PET_MASTER_ADDR").value_or("");
  if (const auto port = variables.number("PET_MASTER_PORT", 1, 65535)) env.port = static_cast<uint16_t>(port->value);
  return env;
}

/// Reads the addresses of all nodes, node 0's first, for schedulers that list them.
void read_addresses(const Variables& variables, const char* name, SchedulerEnv& env) {
  const auto addresses = lines_of(variables, name);
  if (addresses.empty()) return;
  const int count = static_cast<int>(addresses.size());
  if (!env.nodes) env.nodes = Number{name, count};
  if (env.nodes->value != count) {
    refuse(variables, std::string(name) + " has " + std::to_string(count) + " addresses, but " + env.nodes->text());
  }
  if (!env.address.empty() && env.address != addresses[0]) {
    refuse(variables, env.name_of_address + "=" + in_quotes(env.address) + ", but " + name + " begins with " +
                          in_quotes(addresses[0]));
  }
  env.address = addresses[0];
}

std::optional<SchedulerEnv> skypilot_node(const Variables& variables) {
  SchedulerEnv env{.scheduler = "SkyPilot",
                   .name_of_node = "SKYPILOT_NODE_RANK",
                   .name_of_nodes = "SKYPILOT_NUM_NODES",
                   .node = count_of(variables, "SKYPILOT_NODE_RANK", 0),
                   .nodes = count_of(variables, "SKYPILOT_NUM_NODES", 1),
                   .ranks = gpus_of(variables, "SKYPILOT_NUM_GPUS_PER_NODE"),
                   .name_of_address = "SKYPILOT_NODE_IPS"};
  if (!env.node && !env.nodes && !variables.has("SKYPILOT_NODE_IPS")) return std::nullopt;
  read_addresses(variables, "SKYPILOT_NODE_IPS", env);
  return env;
}

std::optional<SchedulerEnv> dstack_node(const Variables& variables) {
  SchedulerEnv env{.scheduler = "dstack",
                   .name_of_node = "DSTACK_NODE_RANK",
                   .name_of_nodes = "DSTACK_NODES_NUM",
                   .node = count_of(variables, "DSTACK_NODE_RANK", 0),
                   .nodes = count_of(variables, "DSTACK_NODES_NUM", 1),
                   .ranks = gpus_of(variables, "DSTACK_GPUS_PER_NODE"),
                   .address = variables.text("DSTACK_MASTER_NODE_IP").value_or(""),
                   .name_of_address = "DSTACK_MASTER_NODE_IP"};
  if (!env.node && !env.nodes) return std::nullopt;
  read_addresses(variables, "DSTACK_NODES_IPS", env);
  return env;
}

std::optional<SchedulerEnv> slurm_node(const Variables& variables) {
  const auto task = slurm_env(variables);
  if (!task) return std::nullopt;
  if (task->local_world_size->value != 1) {
    variables.fail("srun has started " + std::to_string(task->local_world_size->value) +
                       " tasks on this node, but `gputrain launch` starts the ranks of a node by itself",
                   "srun --ntasks-per-node=1 gputrain launch ..., or without it: srun gputrain run ...");
  }
  return SchedulerEnv{.scheduler = "Slurm",
                      .name_of_node = "SLURM_PROCID",
                      .name_of_nodes = "SLURM_NTASKS",
                      .node = task->rank,
                      .nodes = task->world_size,
                      .address = task->first_host,
                      .name_of_address = "MASTER_ADDR",
                      .port = task->port,
                      .job = task->job};
}

void merge(const Variables& variables, std::optional<Number>& own, const std::optional<Number>& other) {
  if (own && other && own->value != other->value) {
    refuse(variables, "two schedulers contradict each other: " + own->text() + ", but " + other->text());
  }
  if (!own) own = other;
}

SchedulerEnv combine(const Variables& variables, SchedulerEnv inner, const SchedulerEnv& outer) {
  merge(variables, inner.node, outer.node);
  merge(variables, inner.nodes, outer.nodes);
  merge(variables, inner.ranks, outer.ranks);
  if (inner.address.empty()) inner.address = outer.address;
  if (!inner.port) inner.port = outer.port;
  if (inner.job.empty()) inner.job = outer.job;
  return inner;
}

std::string address_of(const Variables& variables, const SchedulerEnv& env) {
  const auto of_torchrun = variables.text("PET_MASTER_ADDR"), given = variables.text("MASTER_ADDR");
  const std::string address = without_brackets(of_torchrun ? *of_torchrun : given ? *given : env.address);
  if (address.empty()) {
    refuse(variables,
           env.nodes->text() + ", but " + env.name_of_address + " is unset: the address of node 0 is unknown");
  }
  if (!is_host_name(address)) refuse(variables, "the address of node 0, " + in_quotes(address) + ", is no host name");
  return address;
}

uint16_t port_of(const Variables& variables, const SchedulerEnv& env) {
  for (const char* name : {"PET_MASTER_PORT", "MASTER_PORT"}) {
    if (const auto given = variables.number(name, 1, 65535)) return static_cast<uint16_t>(given->value);
  }
  return env.port.value_or(kPortOfNodes);
}

template <class Read>
auto of_this_process(Read read) {
  return read([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace

std::optional<NodeContext> read_node(const Lookup& lookup) {
  const Variables variables(lookup);
  std::optional<SchedulerEnv> env;
  for (const auto read : {&slurm_node, &dstack_node, &skypilot_node, &torchrun_node}) {  // from outer to inner
    auto inner = read(variables);
    if (inner) env = env ? combine(variables, *std::move(inner), *env) : *std::move(inner);
  }
  if (!env) return std::nullopt;
  NodeContext context{.scheduler = env->scheduler, .job = env->job};
  if (env->ranks) context.ranks = env->ranks->value;
  if (!env->nodes && env->node && env->node->value > 0)
    refuse(variables, env->node->text() + ", but " + env->name_of_nodes + " is unset");
  if (!env->nodes || env->nodes->value == 1) env->nodes = Number{env->name_of_nodes, 1};
  context.nodes = env->nodes->value;
  if (context.nodes > 1 && !env->node)
    refuse(variables, env->nodes->text() + ", but " + env->name_of_node + " is unset");
  if (env->node) context.node = env->node->value;
  if (context.node >= context.nodes) refuse(variables, env->node->text() + " is not below " + env->nodes->text());
  if (context.nodes == 1) return context;
  context.address = address_of(variables, *env);
  context.port = port_of(variables, *env);
  return context;
}

std::optional<NodeContext> read_node() {
  return of_this_process([](const Lookup& lookup) { return read_node(lookup); });
}

std::vector<std::string> allocated_nodes() {
  return of_this_process([](const Lookup& lookup) { return allocated_nodes(lookup); });
}

}  // namespace gputrain::launch
