#include "cudnn_graph.hpp"

#include "attention_graphs.hpp"  // before headers that include another copy of its JSON library
#include "conv_graphs.hpp"
#include "product_graphs.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "../../dispatch/kernel_autotuner.hpp"
#include "../autograd/launching.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/device/runtime.hpp"

namespace gputrain::ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Pointers = std::unordered_map<int64_t, void*>;

constexpr int64_t kPlansAtOnce = 4;  // built in parallel; the fastest is used
constexpr int64_t kMostPlans = 12;   // limit of plans to try if the first ones cannot be built
constexpr int64_t kMostWorkspaceBytes = int64_t{512} << 20;

void check(fe::error_object error, const char* step) {
  if (error.is_bad()) throw NoKernel(fmt::format("cuDNN, {}: {}", step, error.get_message()));
}

/// A request: its key, and graphs that each compute it.
struct Asked {
  std::string key;
  bool deterministic = false;
  std::vector<std::function<std::shared_ptr<Graph>()>> graphs;
};

struct ExecutionPlan {
  std::shared_ptr<Graph> graph;
  int64_t workspace_bytes = 0;

  explicit ExecutionPlan(std::shared_ptr<Graph> built) : graph(std::move(built)) {
    check(graph->get_workspace_size(workspace_bytes), "workspace");
  }

  /// Runs the plan. Takes pointers by value: the frontend adds those of this workspace to the map, and would reuse
  /// them.
  void execute(Pointers pointers) const {
    const auto workspace = c10::cuda::CUDACachingAllocator::get()->allocate(static_cast<size_t>(workspace_bytes));
    check(graph->execute(at::native::getCudnnHandle(), pointers, workspace.get()), "run");
  }
};

/// Builds plans [begin, end) of the graph, each in its own thread, because compiling one takes seconds.
std::vector<int64_t> built_plans(Graph& graph, int64_t begin, int64_t end) {
  const auto device = c10::cuda::current_device();
  std::vector<char> is_built(static_cast<size_t>(end - begin), 0);
  {
    std::vector<std::jthread> builders;
    for (int64_t i = begin; i < end; ++i) {
      builders.emplace_back([&graph, &is_built, begin, i, device] {
        try {
          const bool is_bound = cudaSetDevice(device) == cudaSuccess;
          is_built[static_cast<size_t>(i - begin)] = is_bound && graph.build_plan_at_index(i).is_good();
        } catch (const std::exception&) {
          // This plan is not built.
        }
      });
    }
  }
  std::vector<int64_t> plans;
  for (int64_t i = begin; i < end; ++i) {
    if (is_built[static_cast<size_t>(i - begin)] != 0) plans.push_back(i);
  }
  return plans;
}

/// Times the plan that the graph is set to; infinite if it does not run.
double milliseconds_of(const std::shared_ptr<Graph>& graph, const Pointers& pointers) {
  double best = std::numeric_limits<double>::infinity();
  try {
    const ExecutionPlan plan(graph);
    plan.execute(pointers);  // loads the kernel
    for (int turn = 0; turn < 3; ++turn) best = std::min(best, milliseconds([&] { plan.execute(pointers); }));
  } catch (const std::exception&) {
    // Another plan may run.
  }
  return best;
}

/// A graph and the plan selected for it.
struct Choice {
  std::shared_ptr<Graph> graph;
  std::string plan;  // "3 of 8"
  double ms = std::numeric_limits<double>::infinity();
};

/// Returns the fastest of a few plans of a graph on these tensors; the first plan if they are not timed.
Choice fastest_plan(std::shared_ptr<Graph> graph, bool deterministic, bool is_timed, const Pointers& pointers) {
  check(graph->validate(), "graph");
  check(graph->build_operation_graph(at::native::getCudnnHandle()), "operations");
  check(graph->create_execution_plans({fe::HeurMode_t::A}), "plans");
  if (deterministic) graph->deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
  graph->deselect_workspace_greater_than(kMostWorkspaceBytes);
  check(graph->check_support(), "support");
  const int64_t count = std::min(graph->get_execution_plan_count(), kMostPlans), at_once = is_timed ? kPlansAtOnce : 1;
  std::vector<int64_t> plans;
  for (int64_t begin = 0; begin < count && plans.empty(); begin += at_once) {
    plans = built_plans(*graph, begin, std::min(count, begin + at_once));
  }
  if (plans.empty()) throw NoKernel("cuDNN can build no plan");
  int64_t best = plans.front();
  double best_ms = std::numeric_limits<double>::infinity();
  for (size_t i = 0; is_timed && i < plans.size(); ++i) {
    check(graph->build_plan_at_index(plans[i]), "plan");  // already built: selects it
    const double ms = milliseconds_of(graph, pointers);
    if (ms < best_ms) best = plans[i];
    best_ms = std::min(best_ms, ms);
  }
  if (is_timed && best_ms == std::numeric_limits<double>::infinity()) throw NoKernel("cuDNN runs none of its plans");
  check(graph->build_plan_at_index(best), "plan");
  return {std::move(graph), fmt::format("{} of {}", best, count), best_ms};
}

/// Returns the graph that is fastest on these tensors. If timing must not or cannot decide, the first graph with a
/// plan. Throws NoKernel if there is none.
std::shared_ptr<Graph> found(const Asked& asked, const Pointers& pointers) {
  const device::PeakExclusion aside(
      at::Device(at::kCUDA, c10::cuda::current_device()));  // workspaces of rejected plans
  const bool is_timed = !asked.deterministic && can_measure() && !kernel_autotuner().has_spent_trials();
  Choice best;
  std::string refusal;
  for (size_t i = 0; i < asked.graphs.size() && (is_timed || best.graph == nullptr); ++i) {
    try {
      Choice choice = fastest_plan(asked.graphs[i](), asked.deterministic, is_timed, pointers);
      if (is_timed)
        log::info(fmt::format("cudnn {}: graph {}, plan {}, {:.3f} ms", asked.key, i, choice.plan, choice.ms));
      if (best.graph == nullptr || choice.ms < best.ms) best = std::move(choice);
    } catch (const NoKernel& reason) {
      if (refusal.empty()) refusal = reason.what();
    }
  }
  if (best.graph == nullptr) throw NoKernel(refusal);
  return best.graph;
}

// --- files -----------------------------------------------------------------------------------------------------------

std::string file_key(const Asked& asked) {
  return fmt::format("{}, cudnn {}, frontend {}, {}", machine(), cudnnGetVersion(), CUDNN_FRONTEND_VERSION, asked.key);
}

/// Returns the files of a plan: in the run's folder, and for all runs.
std::vector<std::filesystem::path> files_of(const std::string& key) {
  std::vector<std::filesystem::path> files;
  for (const auto& folder : {kernel_autotuner().kept_in(), choices_file().parent_path()}) {
    if (folder.empty()) continue;
    files.push_back(folder / "cudnn_plans" / fmt::format("{:016x}", std::hash<std::string>{}(key)));
  }
  return files;
}

/// Reads a plan from its file: a line with its key, then cuDNN's bytes. Null if there is no file for this key.
std::shared_ptr<Graph> read_plan(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || line != key) return nullptr;
  const std::vector<uint8_t> data{std::istreambuf_iterator<char>(file), {}};
  // The frontend captures a plan that it reads to test it: keep this off the run's stream. One stream for all calls,
  // because the pool is small and would soon return the run's stream.
  static const c10::cuda::CUDAStream beside = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(can_measure() ? beside : c10::cuda::getCurrentCUDAStream());
  auto graph = std::make_shared<Graph>();
  try {
    if (!graph->deserialize(at::native::getCudnnHandle(), data).is_good()) graph = nullptr;
  } catch (const std::exception&) {
    graph = nullptr;  // damaged file: a plan is searched again
  }
  // That test uses too little memory and ignores the error. Clear it, or the next launch check would report it.
  static_cast<void>(cudaGetLastError());
  return graph;
}

/// Serialises a graph; empty if cuDNN cannot.
std::vector<uint8_t> bytes_of(const Graph& graph) {
  std::vector<uint8_t> data;
  try {
    if (graph.serialize(data).is_good()) return data;
  } catch (const std::exception&) {
    // The graph runs without a file.
  }
  return {};
}

// Renamed into place, because several ranks may write the same file. Without the file, the next run searches again.
void write_plan(const std::filesystem::path& path, const std::string& key, const Graph& graph) {
  const std::vector<uint8_t> data = bytes_of(graph);
  if (data.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path partial = fmt::format("{}.{}", path.string(), ::getpid());
  std::ofstream file(partial, std::ios::binary);
  file << key << '\n';
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  if (file.good()) std::filesystem::rename(partial, path, ignored);
  if (!file.good() || ignored) std::filesystem::remove(partial, ignored);
}

std::shared_ptr<const ExecutionPlan> plan_of(const Asked& asked, const Pointers& pointers) {
  static std::mutex mutex;
  static auto& plans =
      *new std::unordered_map<std::string,
                              std::shared_ptr<const ExecutionPlan>>;  // not destroyed: it outlives cuDNN's shutdown
  const std::string key = fmt::format("{} on {}", asked.key, c10::cuda::current_device());
  const std::lock_guard lock(mutex);
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  const std::string kept_as = file_key(asked);
  const auto files = files_of(kept_as);
  std::shared_ptr<Graph> graph;
  for (size_t i = 0; i < files.size() && graph == nullptr; ++i) graph = read_plan(files[i], kept_as);
  const bool is_new = graph == nullptr;
  if (is_new) {
    if (kernel_autotuner().chooses_roughly()) throw NoKernelYet("cuDNN plans are built later");
    const auto trial = kernel_autotuner().begin_trial("cudnn " + asked.key);
    graph = found(asked, pointers);
  }
  for (const auto& file : files) {
    const bool is_lacking = is_new ? asked.deterministic || can_measure() : !std::filesystem::exists(file);
    if (is_lacking) write_plan(file, kept_as, *graph);
  }
  return plans.emplace(key, std::make_shared<ExecutionPlan>(std::move(graph))).first->second;
}

const char* name_of(Element element) { return element == Element::fp16 ? "fp16" : "bf16"; }

/// Pointers by the graphs' ids 1, 2, ...
Pointers numbered(const std::vector<void*>& tensors) {
  Pointers pointers;
  for (void* tensor : tensors) pointers.emplace(static_cast<int64_t>(pointers.size()) + 1, tensor);
  return pointers;
}

/// Sets the sums to zero, because a kernel may add to the existing values.
void clear_sums(float* sums, int64_t count) {
  C10_CUDA_CHECK(cudaMemsetAsync(sums, 0, static_cast<size_t>(count) * sizeof(float), current_stream()));
}

}  // namespace

std::string ConvGraph::key() const {
  return fmt::format("{} {} {}x{}x{}x{} {}x{} stride {} padding {}{}", kind == Kind::sums ? "sums" : "gradient_sums",
                     name_of(element), images, in, height, width, out, kernel, stride, padding,
                     deterministic ? " deterministic" : "");
}

std::string AttentionGraph::key() const {
  return fmt::format("attention{} {} {}x{}x{}/{}x{}{} by {}{}", kind == Kind::forward ? "" : "_gradient",
                     name_of(element), batch, time, heads, key_heads, channels, causal ? " causal" : "", scale,
                     deterministic ? " deterministic" : "");
}

std::string TextsGraph::key() const {
  return fmt::format("texts{} {} {} of {} in {} {}/{}x{} rows {} {} {}{} window {} by {}{}",
                     kind == Kind::forward ? "" : "_gradient", name_of(element), texts, longest, rows, heads, key_heads,
                     channels, query_row, key_row, value_row, causal ? " causal" : "", window, scale,
                     deterministic ? " deterministic" : "");
}

std::string ProductGraph::key() const {
  return fmt::format("{} {} {}x{}x{}{}{}{}", kind == Kind::gelu ? "gelu" : "gelu_gradient", name_of(element), rows, in,
                     out, transposed ? " transposed" : "", by_tanh ? " by tanh" : "", with_sums ? " sums" : "");
}

void run_graph(const ConvGraph& graph, const std::vector<void*>& tensors, float* sums) {
  const int64_t channels = graph.kind == ConvGraph::Kind::sums ? graph.out : graph.in;
  std::vector<void*> all = tensors;
  all.insert(all.end(), {sums, sums + channels});
  const Pointers pointers = numbered(all);
  Asked asked{graph.key(), graph.deterministic, {[&graph] { return GraphOfConv(graph).graph(); }}};
  if (graph.kind == ConvGraph::Kind::sums && graph.element == Element::fp16) {
    asked.graphs.emplace_back([&graph] { return GraphOfConv(graph, SumsAs::statistics).graph(); });
  }
  const std::shared_ptr<const ExecutionPlan> plan = plan_of(asked, pointers);
  clear_sums(sums, 2 * channels);
  plan->execute(pointers);
}

void run_graph(const AttentionGraph& graph, const std::vector<void*>& tensors) {
  const Pointers pointers = numbered(tensors);
  plan_of({graph.key(), graph.deterministic, {[&graph] { return GraphOfAttention(graph).graph(); }}}, pointers)
      ->execute(pointers);
}

void run_graph(const TextsGraph& graph, const std::vector<void*>& tensors) {
  const Pointers pointers = numbered(tensors);
  plan_of({graph.key(), graph.deterministic, {[&graph] { return GraphOfTexts(graph).graph(); }}}, pointers)
      ->execute(pointers);
}

void run_graph(const ProductGraph& graph, const std::vector<void*>& tensors, float* sums) {
  std::vector<void*> all = tensors;
  if (graph.with_sums) all.push_back(sums);
  const Pointers pointers = numbered(all);
  const std::shared_ptr<const ExecutionPlan> plan =
      plan_of({graph.key(), /*deterministic=*/false, {[&graph] { return GraphOfProduct(graph).graph(); }}}, pointers);
  if (graph.with_sums) clear_sums(sums, graph.out);
  plan->execute(pointers);
}

}  // namespace gputrain::ops::cuda
