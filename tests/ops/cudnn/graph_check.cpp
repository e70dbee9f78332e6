// Builds one graph for a GPU that this machine lacks; cuDNN accepts a description of the GPU instead.
//
// usage: cudnn_graph_check {sm_80 | sm_90 | sm_100 | sm_120} {bf16 | fp16} KIND {any | deterministic} NUMBER...
// KIND sums, statistics, gradient_sums: IMAGES IN HEIGHT OUT KERNEL STRIDE
// KIND attention, attention_gradient:   BATCH TIME HEADS KEY_HEADS CHANNELS {1: causal | 0}
// KIND texts, texts_gradient:           TEXTS LONGEST ROWS HEADS KEY_HEADS CHANNELS {1: causal | 0} WINDOW
// KIND gelu, gelu_gradient, gelu_sums:  ROWS IN OUT {1: transposed | 0} {1: by tanh | 0} 0
// Prints "built plan NUMBER" for the first plan that can be built, or "refused: REASON".
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "../../../src/ops/cuda/cudnn/attention_graphs.hpp"
#include "../../../src/ops/cuda/cudnn/conv_graphs.hpp"
#include "../../../src/ops/cuda/cudnn/product_graphs.hpp"

namespace {

using gputrain::ops::cuda::AttentionGraph;
using gputrain::ops::cuda::ConvGraph;
using gputrain::ops::cuda::Element;
using gputrain::ops::cuda::GraphOfAttention;
using gputrain::ops::cuda::GraphOfConv;
using gputrain::ops::cuda::GraphOfProduct;
using gputrain::ops::cuda::GraphOfTexts;
using gputrain::ops::cuda::ProductGraph;
using gputrain::ops::cuda::SumsAs;
using gputrain::ops::cuda::TextsGraph;
using Graph = std::shared_ptr<cudnn_frontend::graph::Graph>;

struct Gpu {
  std::string_view architecture;
  int major, multiprocessors, shared_bytes, cache_bytes;
  long long memory_bytes;
};
constexpr Gpu kGpus[] = {{"sm_80", 8, 108, 166912, 41943040, 85899345920},       // A100
                         {"sm_90", 9, 132, 232448, 62914560, 150121545728},      // H200
                         {"sm_100", 10, 148, 232448, 132644864, 191561531392},   // B200
                         {"sm_120", 12, 188, 101376, 134217728, 101970837504}};  // RTX PRO 6000
const Gpu* gpu = nullptr;

std::string described(const Gpu& one) {
  const auto number = [](const char* name, auto value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,)"
         R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
         R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"cudaDeviceId":0,)"
         R"("driverVer":13000,"deviceName":"described")" +
         number("multiProcessorCount", one.multiprocessors) + number("maxSharedMemoryPerBlockOptin", one.shared_bytes) +
         number("totalGlobalMem", one.memory_bytes) + number("l2CacheSize", one.cache_bytes) +
         number("deviceVer", one.major * 100) + "}";
}

std::string built(const Graph& graph, bool deterministic) {
  const std::string text = described(*gpu);
  const auto properties = std::make_shared<cudnn_frontend::DeviceProperties>();
  auto error = properties->deserialize({text.begin(), text.end()});
  graph->set_device_properties(properties);
  if (error.is_good()) error = graph->validate();
  if (error.is_good()) error = graph->build_operation_graph();
  if (error.is_good()) error = graph->create_execution_plans({cudnn_frontend::HeurMode_t::A});
  if (deterministic) graph->deselect_numeric_notes({cudnn_frontend::NumericalNote_t::NONDETERMINISTIC});
  if (error.is_good()) error = graph->check_support();
  if (error.is_bad()) return "refused: " + error.get_message();
  std::string reasons;
  for (int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    error = graph->build_plan_at_index(i);
    // cuLibraryLoadData fails after a kernel was generated and compiled, because there is no driver to load it.
    const bool is_built = error.is_good() || error.get_message().find("cuLibraryLoadData") != std::string::npos;
    if (is_built) return "built plan " + std::to_string(i);
    reasons += " | " + error.get_message();
  }
  return "refused:" + reasons;
}

}  // namespace

// Replaces the runtime calls of cuDNN's frontend; answers for the described GPU.
extern "C" cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? gpu->major
           : attribute == cudaDevAttrMultiProcessorCount  ? gpu->multiprocessors
                                                          : 0;
  return cudaSuccess;
}
extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = gpu->major;
  properties->multiProcessorCount = gpu->multiprocessors;
  return cudaSuccess;
}

int main(int count, char** values) {
  constexpr int kFirstNumber = 5;
  const bool is_of_texts = count > 3 && std::string_view(values[3]).starts_with("texts");
  if (count != kFirstNumber + (is_of_texts ? 8 : 6)) return 2;
  const auto number = [&](int i) { return std::strtoll(values[i], nullptr, 10); };
  for (const Gpu& one : kGpus) {
    if (one.architecture == values[1]) gpu = &one;
  }
  if (gpu == nullptr) return 2;
  const Element element = std::string_view(values[2]) == "fp16" ? Element::fp16 : Element::bf16;
  const std::string_view kind = values[3];
  const bool deterministic = std::string_view(values[4]) == "deterministic";
  Graph graph;
  if (is_of_texts) {
    const int64_t heads = number(8), key_heads = number(9), channels = number(10);
    graph = GraphOfTexts({.kind = kind == "texts" ? TextsGraph::Kind::forward : TextsGraph::Kind::gradient,
                          .element = element,
                          .texts = number(5),
                          .longest = number(6),
                          .rows = number(7),
                          .heads = heads,
                          .key_heads = key_heads,
                          .channels = channels,
                          .query_row = heads * channels,
                          .key_row = key_heads * channels,
                          .value_row = key_heads * channels,
                          .causal = number(11) != 0,
                          .window = number(12),
                          .scale = 0.125F,
                          .deterministic = deterministic})
                .graph();
  } else if (kind.starts_with("gelu")) {
    graph = GraphOfProduct({.kind = kind == "gelu" ? ProductGraph::Kind::gelu : ProductGraph::Kind::gradient,
                            .element = element,
                            .rows = number(5),
                            .in = number(6),
                            .out = number(7),
                            .transposed = number(8) != 0,
                            .by_tanh = number(9) != 0,
                            .with_sums = kind == "gelu_sums"})
                .graph();
  } else if (kind.starts_with("attention")) {
    graph =
        GraphOfAttention({.kind = kind == "attention" ? AttentionGraph::Kind::forward : AttentionGraph::Kind::gradient,
                          .element = element,
                          .batch = number(5),
                          .time = number(6),
                          .heads = number(7),
                          .key_heads = number(8),
                          .channels = number(9),
                          .causal = number(10) != 0,
                          .scale = 0.125F,
                          .deterministic = deterministic})
            .graph();
  } else {
    graph = GraphOfConv({.kind = kind == "gradient_sums" ? ConvGraph::Kind::gradient_sums : ConvGraph::Kind::sums,
                         .element = element,
                         .images = number(5),
                         .in = number(6),
                         .height = number(7),
                         .width = number(7),
                         .out = number(8),
                         .kernel = number(9),
                         .stride = number(10),
                         .padding = number(9) / 2,
                         .deterministic = deterministic},
                        kind == "statistics" ? SumsAs::statistics : SumsAs::reductions)
                .graph();
  }
  std::cout << built(graph, deterministic) << std::endl;
  std::_Exit(0);  // cuDNN's shutdown needs the driver
}
