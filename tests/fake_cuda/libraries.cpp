// Fakes cuBLAS and cuDNN. Most functions read only the handle, for its stream: C allows a function to take fewer
// arguments than the caller passes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include <library_types.h>

#include "cudnn_bag.hpp"
#include "fake_cuda.hpp"
#include "ledger.hpp"

namespace {

using namespace gputrain::fake_cuda;

constexpr int kDone = 0;  // success in both

/// A cuBLAS or cuDNN handle.
struct Handle {
  cudaStream_t stream = nullptr;
  int math_mode = 0, pointer_mode = 0;
};

Handle& of(void* handle) { return *static_cast<Handle*>(handle); }

int created(void** handle, const char* call) {
  if (may_wait(call) != cudaSuccess) return 1;
  *handle = new Handle;
  return kDone;
}

int queued(void* handle, const char* call, const Cost& cost = {}) {
  return enqueue(of(handle).stream, call, {}, cost) == cudaSuccess ? kDone : 1;
}

/// Bytes of an element of a cudaDataType_t.
double size_of(int type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
      return 8;
    default:
      return 2;
  }
}

/// A product of [m, k] and [k, n], `count` times; `adds`: to what is there.
Cost cost_of_product(double m, double n, double k, double count, int in, int out, bool adds) {
  return {.kind = "product",
          .bytes = count * ((m * k + k * n) * size_of(in) + m * n * size_of(out) * (adds ? 2 : 1)),
          .operations = 2 * count * m * n * k};
}

}  // namespace

// --- cuBLAS ----------------------------------------------------------------------------------------------------------

FAKE_CUDA int cublasCreate_v2(void** handle) { return created(handle, "cublasCreate"); }
FAKE_CUDA int cublasLtCreate(void** handle) { return created(handle, "cublasLtCreate"); }
FAKE_CUDA int cublasDestroy_v2(void*) { return kDone; }
FAKE_CUDA int cublasLtDestroy(void*) { return kDone; }

FAKE_CUDA int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  of(handle).stream = stream;
  return kDone;
}

FAKE_CUDA int cublasSetWorkspace_v2(void*, void* workspace, size_t bytes) {
  if (bytes > 0 && !is_device_memory(workspace, bytes)) refuse(cudaErrorInvalidValue, "a workspace of cuBLAS");
  return kDone;
}

FAKE_CUDA int cublasSetMathMode(void* handle, int mode) {
  of(handle).math_mode = mode;
  return kDone;
}

FAKE_CUDA int cublasGetMathMode(void* handle, int* mode) {
  *mode = of(handle).math_mode;
  return kDone;
}

FAKE_CUDA int cublasSetPointerMode_v2(void* handle, int mode) {
  of(handle).pointer_mode = mode;
  return kDone;
}

FAKE_CUDA int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = of(handle).pointer_mode;
  return kDone;
}

#define FAKE_CUDA_PRODUCT(name) \
  FAKE_CUDA int name(void* handle) { return queued(handle, #name); }
FAKE_CUDA_PRODUCT(cublasDgemm_v2)
FAKE_CUDA_PRODUCT(cublasSgemmEx)
FAKE_CUDA_PRODUCT(cublasSgemmStridedBatched)
FAKE_CUDA_PRODUCT(cublasDgemmStridedBatched)
FAKE_CUDA_PRODUCT(cublasSgemv_v2)
FAKE_CUDA_PRODUCT(cublasDgemv_v2)
FAKE_CUDA_PRODUCT(cublasSdot_v2)
FAKE_CUDA_PRODUCT(cublasDdot_v2)
FAKE_CUDA_PRODUCT(cublasDotEx)

FAKE_CUDA int cublasSgemm_v2(void* handle, int, int, int m, int n, int k, const void*, const void*, int, const void*,
                             int, const float* beta) {
  return queued(handle, "cublasSgemm", cost_of_product(m, n, k, 1, CUDA_R_32F, CUDA_R_32F, *beta != 0));
}

FAKE_CUDA int cublasGemmEx(void* handle, int, int, int m, int n, int k, const void*, const void*, int in, int,
                           const void*, int, int, const float* beta, void*, int out) {
  return queued(handle, "cublasGemmEx", cost_of_product(m, n, k, 1, in, out, *beta != 0));
}

FAKE_CUDA int cublasGemmBatchedEx(void* handle, int, int, int m, int n, int k, const void*, const void* const*, int in,
                                  int, const void* const*, int, int, const float* beta, void* const*, int out, int,
                                  int count) {
  return queued(handle, "cublasGemmBatchedEx", cost_of_product(m, n, k, count, in, out, *beta != 0));
}

FAKE_CUDA int cublasGemmStridedBatchedEx(void* handle, int, int, int m, int n, int k, const void*, const void*, int in,
                                         int, long long, const void*, int, int, long long, const float* beta, void*,
                                         int out, int, long long, int count) {
  return queued(handle, "cublasGemmStridedBatchedEx", cost_of_product(m, n, k, count, in, out, *beta != 0));
}

// Descriptors whose content nothing reads.
#define FAKE_CUDA_DESCRIPTION(name)                 \
  FAKE_CUDA int cublasLt##name##Create(void** it) { \
    *it = new Handle;                               \
    return kDone;                                   \
  }                                                 \
  FAKE_CUDA int cublasLt##name##Destroy(void* it) { \
    delete static_cast<Handle*>(it);                \
    return kDone;                                   \
  }                                                 \
  FAKE_CUDA int cublasLt##name##SetAttribute(void*, int, const void*, size_t) { return kDone; }
FAKE_CUDA_DESCRIPTION(MatmulDesc)

/// A matrix as cuBLASLt describes it.
struct Matrix {
  int type;
  uint64_t rows, columns;
};

FAKE_CUDA int cublasLtMatrixLayoutCreate(void** it, int type, uint64_t rows, uint64_t columns, int64_t) {
  *it = new Matrix{type, rows, columns};
  return kDone;
}
FAKE_CUDA int cublasLtMatrixLayoutDestroy(void* it) {
  delete static_cast<Matrix*>(it);
  return kDone;
}
FAKE_CUDA int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return kDone; }

FAKE_CUDA_DESCRIPTION(MatmulPreference)

FAKE_CUDA size_t cublasLtGetVersion() { return 130000; }
FAKE_CUDA const char* cublasLtGetStatusString(int) { return "refused by the pretend GPU"; }

/// Same layout as cublasLtMatmulHeuristicResult_t.
struct Proposal {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

FAKE_CUDA int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted, Proposal* all,
                                             int* number) {
  *number = std::min(wanted, 2);
  for (int i = 0; i < *number; ++i) all[i] = {.algorithm = {static_cast<uint64_t>(i) + 1}};
  return kDone;
}

FAKE_CUDA int cublasLtMatmul(void*, void*, const void*, const void* a, const Matrix* of_a, const void* b, void*,
                             const float* beta, const void*, void*, void* d, const Matrix* of_d, const void*,
                             void* workspace, size_t bytes, cudaStream_t stream) {
  const bool all_there = is_device_memory(a, 1) && is_device_memory(b, 1) && is_device_memory(d, 1) &&
                         (bytes == 0 || is_device_memory(workspace, bytes));
  if (!all_there) refuse(cudaErrorInvalidValue, "a product of memory that is not there");
  const auto m = static_cast<double>(of_d->rows), n = static_cast<double>(of_d->columns);
  const double k = static_cast<double>(of_a->rows * of_a->columns) / m;
  const Cost cost = cost_of_product(m, n, k, 1, of_a->type, of_d->type, *beta != 0);
  return enqueue(stream, "cublasLtMatmul", {}, cost) == cudaSuccess ? kDone : 1;
}

// --- cuDNN -----------------------------------------------------------------------------------------------------------

FAKE_CUDA size_t cudnnGetVersion() { return 91900; }
FAKE_CUDA size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
FAKE_CUDA const char* cudnnGetErrorString(int) { return "refused by the pretend GPU"; }
FAKE_CUDA void cudnnGetLastErrorString(char* text, size_t bytes) { std::memset(text, 0, std::min<size_t>(bytes, 1)); }
FAKE_CUDA int cudnnCreate(void** handle) { return created(handle, "cudnnCreate"); }
FAKE_CUDA int cudnnDestroy(void*) { return kDone; }

FAKE_CUDA int cudnnSetStream(void* handle, cudaStream_t stream) {
  of(handle).stream = stream;
  return kDone;
}

FAKE_CUDA int cudnnGetStream(void* handle, cudaStream_t* stream) {
  *stream = of(handle).stream;
  return kDone;
}

namespace {

// Values of cudnnBackendAttributeType_t.
constexpr int kInt64 = 3, kDescriptor = 15, kInt32 = 23;
constexpr int kKnobChoices = 302;

size_t bytes_of(int type) {
  switch (type) {
    case 2:   // bool
    case 24:  // char
      return 1;
    case 0:  // pointers and 64-bit values
    case kInt64:
    case 5:
    case 6:
    case kDescriptor:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

FAKE_CUDA int cudnnBackendCreateDescriptor(int type, void** bag) {
  *bag = new Bag{.type = type};
  return kDone;
}

/// A ledger needs them as long as a plan may run.
FAKE_CUDA int cudnnBackendDestroyDescriptor(void* bag) {
  if (!keeps_ledger()) delete static_cast<Bag*>(bag);
  return kDone;
}

FAKE_CUDA int cudnnBackendFinalize(void*) { return kDone; }

FAKE_CUDA int cudnnBackendSetAttribute(void* bag, int attribute, int type, int64_t number, const void* values) {
  const char* bytes = static_cast<const char*>(values);
  static_cast<Bag*>(bag)->attributes[attribute] = {
      number, std::vector<char>(bytes, bytes + static_cast<size_t>(number) * bytes_of(type))};
  if (type == kDescriptor) {
    for (int64_t i = 0; i < number; ++i) static_cast<Bag*>(bag)->others.push_back(static_cast<Bag* const*>(values)[i]);
  }
  return kDone;
}

/// The attribute that was set; otherwise a default: one engine, zeros for sizes, no notes and no knobs.
FAKE_CUDA int cudnnBackendGetAttribute(void* bag, int attribute, int type, int64_t wanted, int64_t* number,
                                       void* values) {
  const auto& attributes = static_cast<Bag*>(bag)->attributes;
  const size_t room = values == nullptr ? 0 : static_cast<size_t>(wanted) * bytes_of(type);
  if (const auto set = attributes.find(attribute); set != attributes.end()) {
    const auto& [count, bytes] = set->second;
    if (number != nullptr) *number = count;
    if (room > 0) std::memcpy(values, bytes.data(), std::min(room, bytes.size()));
    return kDone;
  }
  const bool has_one = type == kInt64 || type == kInt32 || (type == kDescriptor && attribute != kKnobChoices);
  if (number != nullptr) *number = has_one ? 1 : 0;
  if (room > 0 && type != kDescriptor) std::memset(values, 0, room);  // the caller provides the descriptors
  for (int64_t i = 0; has_one && room > 0 && type == kDescriptor && i < 1; ++i)
    static_cast<Bag* const*>(values)[i]->others.push_back(static_cast<Bag*>(bag));
  return kDone;
}

FAKE_CUDA int cudnnBackendExecute(void* handle, void* plan, void*) {
  return queued(handle, "cudnnBackendExecute", keeps_ledger() ? cost_of_plan(*static_cast<const Bag*>(plan)) : Cost{});
}

// Batch norms: ATen still uses the old API for them.
FAKE_CUDA int cudnnCreateTensorDescriptor(void** bag) { return cudnnBackendCreateDescriptor(0, bag); }
FAKE_CUDA int cudnnDestroyTensorDescriptor(void* bag) { return cudnnBackendDestroyDescriptor(bag); }
FAKE_CUDA int cudnnSetTensorNdDescriptor(void*, int, int, const int*, const int*) { return kDone; }

namespace {

int some_room(size_t* bytes) {
  *bytes = 4096;
  return kDone;
}

}  // namespace

FAKE_CUDA int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*,
                                                                       void*, size_t* bytes) {
  return some_room(bytes);
}
FAKE_CUDA int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                                void*, void*, size_t* bytes) {
  return some_room(bytes);
}
FAKE_CUDA int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  return some_room(bytes);
}
FAKE_CUDA_PRODUCT(cudnnBatchNormalizationForwardTrainingEx)
FAKE_CUDA_PRODUCT(cudnnBatchNormalizationBackwardEx)
FAKE_CUDA_PRODUCT(cudnnBatchNormalizationForwardInference)
