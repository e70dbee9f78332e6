// Products of blocks of rows with the matrix of each block's group. cuBLAS finds the matrices by addresses that are
// computed on the device.
#include <cstdint>

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <cublas_v2.h>

#include "../../dispatch/gpu.hpp"
#include "../autograd/launching.hpp"

namespace gputrain::ops {
namespace {

cudaDataType_t type_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return CUDA_R_32F;
  return tensor.scalar_type() == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

/// Returns the addresses of the parts of a tensor along its first dim, int64 [parts] on its device.
at::Tensor addresses_of_parts(const at::Tensor& tensor) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()));
  const int64_t distance = tensor.stride(0) * static_cast<int64_t>(tensor.element_size());
  return at::arange(tensor.size(0), tensor.options().dtype(at::kLong)).mul_(distance).add_(begin);
}

bool takes(const at::Tensor& x, const at::Tensor& matrices) {
  const auto type = x.scalar_type();
  return cuda::runs_kernels(x) && x.is_contiguous() && type == matrices.scalar_type() &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
}

template <class Address>
Address* pointers(const at::Tensor& addresses) {
  return reinterpret_cast<Address*>(addresses.mutable_data_ptr<int64_t>());
}

}  // namespace

at::Tensor gpu::grouped_products(const at::Tensor& x, const at::Tensor& matrices, const at::Tensor& groups,
                                 bool transposes) {
  if (!takes(x, matrices)) return {};
  const int64_t blocks = x.size(0), rows = x.size(1), inner = x.size(2);
  const int64_t columns = matrices.size(transposes ? 1 : 2);
  const at::Tensor y = at::empty({blocks, rows, columns}, x.options());
  const at::Tensor of_x = addresses_of_parts(x), of_y = addresses_of_parts(y);
  const at::Tensor of_matrices = at::index_select(addresses_of_parts(matrices), 0, groups);
  // cuBLAS is column-major and so computes y^T = matrix^T x^T.
  const auto height = static_cast<int>(columns), width = static_cast<int>(rows), depth = static_cast<int>(inner);
  const float one = 1, zero = 0;
  const cudaDataType_t type = type_of(x);
  const cublasStatus_t status = cublasGemmBatchedEx(
      at::cuda::getCurrentCUDABlasHandle(), transposes ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, height, width, depth,
      &one, pointers<const void*>(of_matrices), type, static_cast<int>(matrices.size(2)), pointers<const void*>(of_x),
      type, depth, &zero, pointers<void*>(of_y), type, height, static_cast<int>(blocks), CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT);
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasGemmBatchedEx: ", cublasGetStatusString(status));
  return y;
}

/// Adds block after block: each product is added where its group's sum is, so that no block's own product is stored.
/// The order is the same every time.
bool gpu::add_grouped_products(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& groups,
                               const at::Tensor& sums) {
  if (!takes(x, dy) || !dy.is_contiguous() || sums.scalar_type() != at::kFloat) return false;
  const at::Tensor of_x = addresses_of_parts(x), of_dy = addresses_of_parts(dy),
                   of_sums = at::index_select(addresses_of_parts(sums), 0, groups);
  // cuBLAS is column-major and so computes sum^T += x^T dy.
  const auto height = static_cast<int>(x.size(2)), width = static_cast<int>(dy.size(2)),
             depth = static_cast<int>(x.size(1));
  const float one = 1;
  const cudaDataType_t type = type_of(x);
  const cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  for (int64_t block = 0; block < x.size(0); ++block) {
    const cublasStatus_t status = cublasGemmBatchedEx(
        handle, CUBLAS_OP_N, CUBLAS_OP_T, height, width, depth, &one, pointers<const void*>(of_x) + block, type, height,
        pointers<const void*>(of_dy) + block, type, width, &one, pointers<void*>(of_sums) + block, CUDA_R_32F, height,
        /*batchCount=*/1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasGemmBatchedEx: ", cublasGetStatusString(status));
  }
  return true;
}

}  // namespace gputrain::ops
