// Streams, events and the graphs captured from them, with the capture rules of the CUDA programming guide: no waiting,
// no unordered work on other streams, no forks that do not rejoin.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "fake_cuda.hpp"

namespace gputrain::fake_cuda {
namespace {

struct Node {
  std::string name;
  std::function<void()> work;
  std::set<size_t> after;
};

struct Graph {
  std::vector<Node> nodes;
  std::set<const void*> communicators;  // communicators of its collectives
  int owners = 0;                       // the graph and the executables made from it
  bool is_broken = false, is_long = false;
};

struct Stream {
  bool waits_for_legacy = true;
  Graph* graph = nullptr;  // the graph it is being captured into
  std::set<size_t> last;   // its nodes that the next node depends on
  bool is_origin = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  pthread_t owner = {};
};

struct Event {
  bool is_recorded = false;
  const Graph* graph = nullptr;  // the graph it was recorded in during a capture
  std::set<size_t> last;
  double milliseconds = 0;
  bool comes_after_hang = false;
};

std::set<const Graph*>& owned_graphs() {
  static auto* const all = new std::set<const Graph*>;
  return *all;
}

cudaError_t disown(Graph& graph) {
  const std::lock_guard lock(mutex());
  if (--graph.owners == 0) owned_graphs().erase(&graph);
  return cudaSuccess;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

std::set<Stream*>& streams() {
  static auto* const all = new std::set<Stream*>;
  return *all;
}

Stream& legacy() {
  static auto* const one = new Stream;
  return *one;
}

Stream& stream_of(cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy();
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (streams().contains(stream)) return *stream;
  refuse(cudaErrorInvalidResourceHandle, "a stream that is not there");
  return legacy();
}

Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

/// Of a ledger's clock where one is kept, so that trials of kernels end the same every time.
double milliseconds_now() {
  if (keeps_ledger()) return milliseconds_of_calls();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A captured stream that synchronises with the legacy stream; the legacy stream must not be used meanwhile.
Stream* captured_beside_legacy() {
  for (Stream* stream : streams()) {
    if (stream->graph != nullptr && stream->waits_for_legacy) return stream;
  }
  return nullptr;
}

cudaStreamCaptureStatus status_of(const Stream& stream) {
  if (stream.graph == nullptr) return cudaStreamCaptureStatusNone;
  return stream.graph->is_broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

/// Number of nodes that the origin does not depend on: forks that did not rejoin.
size_t lost_nodes(const Graph& graph, const Stream& origin) {
  std::vector<size_t> to_visit(origin.last.begin(), origin.last.end());
  std::set<size_t> reached;
  while (!to_visit.empty()) {
    const size_t node = to_visit.back();
    to_visit.pop_back();
    if (!reached.insert(node).second) continue;
    to_visit.insert(to_visit.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return graph.nodes.size() - reached.size();
}

/// Makes the stream wait for the event and joins it to the event's capture.
cudaError_t join(Stream& stream, const Event& event) {
  bool is_under_way = false;
  for (const Stream* other : streams()) is_under_way |= other->graph == event.graph;
  if (!is_under_way) return refuse(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
  if (&stream == &legacy()) return refuse(cudaErrorStreamCaptureImplicit, "the legacy stream joins a capture");
  if (stream.graph == nullptr) {
    stream.graph = const_cast<Graph*>(event.graph);
    stream.last.clear();
  }
  if (stream.graph != event.graph) return refuse(cudaErrorStreamCaptureMerge, "two captures wait for each other");
  stream.last.insert(event.last.begin(), event.last.end());
  return cudaSuccess;
}

}  // namespace

bool is_captured(cudaStream_t stream) { return stream_of(stream).graph != nullptr; }

void note_use(cudaStream_t stream, const void* communicator) {
  const std::lock_guard lock(mutex());
  if (Graph* graph = stream_of(stream).graph) graph->communicators.insert(communicator);
}

bool is_used_by_graphs(const void* communicator) {
  const std::lock_guard lock(mutex());
  return std::ranges::any_of(owned_graphs(),
                             [&](const Graph* graph) { return graph->communicators.contains(communicator); });
}

cudaError_t may_wait(const char* call) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t failure = fault()) return failure;
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const Stream* stream : streams()) {
    if (stream->graph == nullptr || !stream->is_origin) continue;
    const bool is_own = pthread_equal(stream->owner, pthread_self()) != 0;
    const bool forbids =
        is_own ? stream->mode != cudaStreamCaptureModeRelaxed
               : stream->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    stream->graph->is_broken = true;
    return refuse(cudaErrorStreamCaptureUnsupported, std::string(call) + " during a capture");
  }
  return cudaSuccess;
}

cudaError_t load_kernel(cudaStream_t handle) {
  constexpr size_t kCalls = 50;
  static size_t long_ones = 0;
  const std::lock_guard lock(mutex());
  Graph* graph = stream_of(handle).graph;
  if (graph == nullptr || graph->is_long || graph->nodes.size() < kCalls) return cudaSuccess;
  graph->is_long = true;
  if (++long_ones != setting("PRETEND_CAPTURE_SHORTAGE", 0)) return cudaSuccess;
  graph->is_broken = true;
  return fail(cudaErrorMemoryAllocation);
}

cudaError_t enqueue(cudaStream_t handle, const std::string& name, std::function<void()> work, const Cost& cost) {
  const std::lock_guard lock(mutex());
  Stream& stream = stream_of(handle);
  note_call(name, cost, stream.graph);
  if (Stream* captured = &stream == &legacy() ? captured_beside_legacy() : nullptr) {
    captured->graph->is_broken = true;
    return refuse(cudaErrorStreamCaptureImplicit, name + " in the legacy stream during a capture");
  }
  if (stream.graph == nullptr) {
    if (const cudaError_t failure = start_work()) return failure;
    if (work) work();
    return cudaSuccess;
  }
  stream.graph->nodes.push_back({name, std::move(work), stream.last});
  stream.last = {stream.graph->nodes.size() - 1};
  return cudaSuccess;
}

}  // namespace gputrain::fake_cuda

using namespace gputrain::fake_cuda;

FAKE_CUDA cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int) {
  const std::lock_guard lock(mutex());
  auto* stream = new Stream{.waits_for_legacy = (flags & cudaStreamNonBlocking) == 0};
  streams().insert(stream);
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

FAKE_CUDA cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

FAKE_CUDA cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(mutex());
  if (is_captured(handle)) return refuse(cudaErrorInvalidResourceHandle, "a stream is destroyed during its capture");
  streams().erase(&stream_of(handle));  // never freed: others may still use it
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamSynchronize(cudaStream_t) {
  count("waits: cudaStreamSynchronize");
  if (const cudaError_t refusal = may_wait("cudaStreamSynchronize")) return refusal;
  wait_for_hang();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamQuery(cudaStream_t) { return may_wait("cudaStreamQuery"); }

FAKE_CUDA cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, "host function", [=] { function(data); });
}

FAKE_CUDA cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  return enqueue(stream, "callback", [=] { callback(stream, cudaSuccess, data); });
}

FAKE_CUDA cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(mutex());
  const Stream& stream = stream_of(handle);
  if (&stream == &legacy() && captured_beside_legacy() != nullptr)
    return refuse(cudaErrorStreamCaptureImplicit, "the legacy stream is asked during a capture");
  *status = status_of(stream);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                               size_t* number) {
  const std::lock_guard lock(mutex());
  const Stream& stream = stream_of(handle);
  *status = status_of(stream);
  if (id != nullptr) *id = reinterpret_cast<unsigned long long>(stream.graph);
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(stream.graph);
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (number != nullptr) *number = 0;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex());
  Stream& stream = stream_of(handle);
  if (&stream == &legacy() || stream.graph != nullptr)
    return refuse(cudaErrorStreamCaptureUnsupported, "the capture of a stream that cannot be captured now");
  stream.graph = new Graph;
  stream.is_origin = true;
  stream.mode = mode;
  stream.owner = pthread_self();
  stream.last.clear();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* captured) {
  const std::lock_guard lock(mutex());
  *captured = nullptr;
  Stream& origin = stream_of(handle);
  Graph* graph = origin.graph;
  if (graph == nullptr || !origin.is_origin)
    return refuse(cudaErrorIllegalState, "the end of a capture that this stream did not begin");
  if (origin.mode != cudaStreamCaptureModeRelaxed && pthread_equal(origin.owner, pthread_self()) == 0)
    return refuse(cudaErrorStreamCaptureWrongThread, "a capture is ended by another thread");
  const size_t lost = lost_nodes(*graph, origin);
  for (Stream* stream : streams()) {
    if (stream->graph != graph) continue;
    stream->graph = nullptr;
    stream->is_origin = false;
    stream->last.clear();
  }
  if (graph->is_broken) return fail(cudaErrorStreamCaptureInvalidated);
  if (lost > 0)
    return refuse(cudaErrorStreamCaptureUnjoined, std::to_string(lost) + " captured calls do not come back");
  if (!graph->nodes.empty()) count("captured graphs");
  *captured = reinterpret_cast<cudaGraph_t>(graph);
  graph->owners = 1;
  owned_graphs().insert(graph);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* number) {
  *number = reinterpret_cast<const Graph*>(graph)->nodes.size();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* runnable, cudaGraph_t graph, unsigned long long) {
  *runnable = reinterpret_cast<cudaGraphExec_t>(graph);  // never freed
  ++reinterpret_cast<Graph*>(graph)->owners;
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaGraphLaunch(cudaGraphExec_t runnable, cudaStream_t stream) {
  const auto* graph = reinterpret_cast<const Graph*>(runnable);
  count("launched graphs");
  note_launch(graph);
  if (!graph->communicators.empty()) start_collectives();
  return enqueue(stream, "graph", [graph] {
    for (const Node& node : graph->nodes) {
      if (node.work) node.work();
    }
  });
}

FAKE_CUDA cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return disown(*reinterpret_cast<Graph*>(graph)); }
FAKE_CUDA cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return disown(*reinterpret_cast<Graph*>(graph)); }

FAKE_CUDA cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }

FAKE_CUDA cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  delete &event_of(handle);
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t failure = fault()) return failure;
  if (flags == cudaEventRecordExternal && is_captured(stream)) {
    return enqueue(stream, "event", [handle] {
      event_of(handle).milliseconds = milliseconds_now();
      event_of(handle).is_recorded = true;
    });
  }
  const Stream& of = stream_of(stream);
  event_of(handle) = {.is_recorded = true,
                      .graph = of.graph,
                      .last = of.last,
                      .milliseconds = milliseconds_now(),
                      .comes_after_hang = is_hanging()};
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

FAKE_CUDA cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event_of(event).graph != nullptr) return refuse(cudaErrorCapturedEvent, "a captured event is asked");
  if (const cudaError_t refusal = may_wait("cudaEventQuery")) return refusal;
  return is_hanging() && event_of(event).comes_after_hang ? fail(cudaErrorNotReady) : cudaSuccess;
}

FAKE_CUDA cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count("waits: cudaEventSynchronize");
  if (event_of(event).graph != nullptr) return refuse(cudaErrorCapturedEvent, "a captured event is waited for");
  if (const cudaError_t refusal = may_wait("cudaEventSynchronize")) return refusal;
  if (event_of(event).comes_after_hang) wait_for_hang();
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!event_of(begin).is_recorded || !event_of(end).is_recorded)
    return refuse(cudaErrorInvalidResourceHandle, "the time between events that were not recorded");
  const double elapsed = event_of(end).milliseconds - event_of(begin).milliseconds;
  *milliseconds = static_cast<float>(elapsed) + 1e-3F;  // never zero
  return cudaSuccess;
}

FAKE_CUDA cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t waited, unsigned flags) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t failure = fault()) return failure;
  Stream& stream = stream_of(handle);
  const Event& event = event_of(waited);
  if (event.graph != nullptr) return join(stream, event);
  if (stream.graph != nullptr && event.is_recorded && flags == cudaEventWaitDefault) {
    stream.graph->is_broken = true;
    return refuse(cudaErrorStreamCaptureIsolation, "a captured stream waits for work outside of the capture");
  }
  return cudaSuccess;
}
