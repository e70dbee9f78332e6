#include "gemm.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <cublasLt.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../../dispatch/kernel_autotuner.hpp"
#include "../autograd/launching.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::ops::cuda {
namespace {

constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;  // recommended for Hopper
constexpr int kMostCandidates = 16;

void check(cublasStatus_t status, const char* call) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroyer {
  void operator()(Handle handle) const noexcept { destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, destroy>>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return CUDA_R_32F;
  return tensor.scalar_type() == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

/// Returns whether a matrix is row-major. cuBLASLt's matrices are column-major: a row-major matrix is passed as its
/// transpose, and a transposed one with a transpose flag.
bool is_row_major(const at::Tensor& matrix) { return matrix.stride(1) == 1; }

Layout layout_of(const at::Tensor& matrix) {
  const int fast = is_row_major(matrix) ? 1 : 0;
  const int64_t height = matrix.size(fast), width = matrix.size(1 - fast);
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(matrix), static_cast<uint64_t>(height),
                                   static_cast<uint64_t>(width), std::max(matrix.stride(1 - fast), height)),
        "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

constexpr uintptr_t kMostAlignment = 256;  // largest one considered; LibTorch's allocator gives at least this

/// Returns the largest power of two, up to kMostAlignment, that divides the address.
uint32_t alignment_of(const at::Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return static_cast<uint32_t>(std::min(kMostAlignment, address & (~address + 1)));
}

/// Returns new memory with the same shape and alignment: cuBLASLt's algorithms depend on the alignment.
at::Tensor aligned_like(const at::Tensor& tensor) {
  const auto past = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kMostAlignment;
  const auto skipped = static_cast<int64_t>(past) / tensor.element_size();
  return at::empty({skipped + tensor.numel()}, tensor.options())
      .narrow(0, skipped, tensor.numel())
      .view(tensor.sizes());
}

/// Returns the epilogue in cuBLASLt's terms, where a and b are swapped: (a b)^T = b^T a^T.
cublasLtEpilogue_t epilogue_of(const GemmCall& p) {
  switch (p.epilogue) {
    case Epilogue::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gelu_tanh:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::sums_of_a:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::sums_of_b:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  TORCH_CHECK(false, "an epilogue without a name");
}

/// A product as a call of cuBLASLt.
class Call {
 public:
  explicit Call(const GemmCall& p) : p_(p), a_(layout_of(p.b)), b_(layout_of(p.a)), out_(layout_of(p.out)) {
    cublasLtMatmulDesc_t description = nullptr;
    check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    description_.reset(description);
    set(CUBLASLT_MATMUL_DESC_TRANSA, is_row_major(p.b) ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, is_row_major(p.a) ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p.vector.defined()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.vector.mutable_data_ptr());
    if (p.aux.defined()) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.mutable_data_ptr());
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux.stride(0));
    }
  }

  /// Algorithms that cuBLASLt recommends, the best first; none if it does not support the product.
  std::vector<cublasLtMatmulAlgo_t> candidates() const {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Preference preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Partial sums of several blocks are added in fp32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p_.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p_.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p_.out));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p_.out));
    std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(), description_.get(), a_.get(), b_.get(),
                                       out_.get(), out_.get(), made, kMostCandidates, found.data(), &count);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
      const auto& one = found[static_cast<size_t>(i)];
      if (one.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(one.algo);
    }
    return algorithms;
  }

  /// Starts the product and returns cuBLASLt's status.
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm) const {
    const float alpha = 1, beta = p_.adds ? 1 : 0;
    // LibTorch's allocator gives this memory only to later work on the same stream.
    const at::Tensor workspace = at::empty({static_cast<int64_t>(kWorkspaceBytes)}, p_.out.options().dtype(at::kByte));
    void* out = p_.out.mutable_data_ptr();
    return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), description_.get(), &alpha, p_.b.const_data_ptr(),
                          a_.get(), p_.a.const_data_ptr(), b_.get(), &beta, out, out_.get(), out, out_.get(),
                          &algorithm, workspace.mutable_data_ptr(), kWorkspaceBytes, current_stream());
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  const GemmCall& p_;
  Layout a_, b_, out_;  // a_ describes b, b_ describes a
  Description description_;
};

/// Everything that the choice of an algorithm depends on.
using Key = std::array<int64_t, 16>;

Key key_of(const GemmCall& p) {
  const auto distance = [](const at::Tensor& t) { return is_row_major(t) ? t.stride(0) : t.stride(1); };
  const auto aligned = [](const at::Tensor& t) { return t.defined() ? int64_t{alignment_of(t)} : 0; };
  return {p.out.size(0),
          p.out.size(1),
          p.a.size(1),
          is_row_major(p.a),
          distance(p.a),
          is_row_major(p.b),
          distance(p.b),
          type_of(p.a),
          type_of(p.out),
          p.adds,
          static_cast<int64_t>(p.epilogue),
          aligned(p.a),
          aligned(p.b),
          aligned(p.out),
          aligned(p.vector),
          aligned(p.aux)};
}

struct Found {
  bool is_asked = false, is_left = false;        // cuBLASLt was asked; ATen does the epilogue
  std::vector<cublasLtMatmulAlgo_t> candidates;  // empty: not supported
  std::optional<size_t> best;                    // none until measured
  std::optional<bool> is_apart;                  // whether its sums are computed apart; none until measured
};

std::string name_of(const Key& key) {
  return fmt::format("product by cublasLt {} {}", cublasLtGetVersion(), fmt::join(key, " "));
}

/// Returns `p` for trials. If it adds to `out`, its result goes to new memory, because `out` must not change; none if
/// memory is short.
std::optional<GemmCall> trial_of(const GemmCall& p) {
  GemmCall trial = p;
  try {
    if (p.adds) trial.out = aligned_like(p.out);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
  return trial;
}

/// Returns the index of the fastest algorithm, by trying all; none if they cannot be tried.
std::optional<size_t> best_of(const GemmCall& p, const Key& key, const Found& found) {
  const std::optional<GemmCall> trial = trial_of(p);
  if (!trial) return std::nullopt;
  const Call call(*trial);
  return kernel_autotuner().fastest(name_of(key), found.candidates.size(),
                                    [&](size_t i) { check(call.run(found.candidates[i]), "cublasLtMatmul"); });
}

/// Returns the entry of a key, one for the whole process; a run has some dozens.
Found& found_for(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, Found> all;
  const std::lock_guard lock(mutex);
  return all[key];
}

/// Returns false if cuBLASLt does not support the product.
bool gemm_by_cublas(const GemmCall& p) {
  const Key key = key_of(p);
  Found& found = found_for(key);
  const Call call(p);
  if (!std::exchange(found.is_asked, true)) found.candidates = call.candidates();
  while (!found.candidates.empty()) {
    try {
      if (!found.best) found.best = best_of(p, key, found);
    } catch (const NoKernel& reason) {
      log::warning(name_of(key) + ": using ATen: " + reason.what());
      found.candidates.clear();
      break;
    }
    const size_t at = found.best.value_or(0);
    const cublasStatus_t status = call.run(found.candidates[at]);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    // Unless execution failed, nothing was started: try another algorithm.
    TORCH_CHECK(status != CUBLAS_STATUS_EXECUTION_FAILED, "cublasLtMatmul: ", cublasLtGetStatusString(status));
    found.candidates.erase(found.candidates.begin() + static_cast<std::ptrdiff_t>(at));
    found.best = 0;
  }
  if (!std::exchange(found.is_left, true)) log::info(name_of(key) + ": not supported, ATen computes its epilogue");
  return false;
}

void gemm_and_finish(const GemmCall& p) {
  gemm({.a = p.a, .b = p.b, .out = p.out, .adds = p.adds});
  finish_by_aten(p);
}

/// Returns whether sums are faster apart from the product: for some shapes, kernels that compute both are much slower
/// than kernels for the product alone.
bool sums_are_apart(const GemmCall& p) {
  if (p.epilogue != Epilogue::sums_of_a && p.epilogue != Epilogue::sums_of_b) return false;
  const Key key = key_of(p);
  Found& found = found_for(key);
  if (found.is_apart) return *found.is_apart;
  std::optional<GemmCall> trial;
  const auto attempt = [&](size_t i) {
    if (!trial) trial = trial_of(p);
    TORCH_CHECK(trial, "out of memory for a trial");
    if (i == 1) return gemm_and_finish(*trial);
    TORCH_CHECK(gemm_by_cublas(*trial), "not supported");
  };
  try {
    const auto choice = kernel_autotuner().fastest("sums with " + name_of(key), 2, attempt);
    if (choice) found.is_apart = *choice == 1;
  } catch (const NoKernel& reason) {
    log::warning(name_of(key) + ": its sums apart, by ATen: " + reason.what());
    found.is_apart = true;
  }
  return found.is_apart.value_or(false);
}

}  // namespace

void gemm(const GemmCall& p) {
  if (!sums_are_apart(p) && gemm_by_cublas(p)) return;
  if (p.epilogue != Epilogue::none) return gemm_and_finish(p);
  const at::Tensor product = at::mm(p.a, p.b, p.out.scalar_type());
  p.adds ? p.out.add_(product) : p.out.copy_(product);
}

}  // namespace gputrain::ops::cuda
