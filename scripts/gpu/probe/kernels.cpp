#include "kernels.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/layer_norm.h>
#include <c10/cuda/CUDAStream.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {

void probe_kernels(Report& report) {
  for (const int blocks : {132 * 2, 132 * 4, 132 * 16}) {
    report.attempt(
        "kernels", Record().set("what", "copy, 16 bytes a thread").set("blocks", blocks), [&](Record& record) {
          const at::Tensor from = noise({int64_t{1} << 30}, at::kBFloat16);
          const at::Tensor to = at::full_like(from, std::nan(""));
          const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
          const double ms = median_ms([&] { launch_copy(from.data_ptr(), to.data_ptr(), 2L << 30, blocks, stream); });
          record.set("ms", ms).set("TB/s read and written", 4.0 * (1 << 30) / ms / 1e9).set("equal", to.equal(from));
        });
  }
  report.attempt("kernels", Record().set("what", "residual + LayerNorm, width 768"), [](Record& record) {
    const int rows = 32768;
    const at::Tensor x = noise({rows, 768}, at::kBFloat16), residual = noise({rows, 768}, at::kBFloat16);
    const at::Tensor scale = noise({768}, at::kBFloat16), shift = noise({768}, at::kBFloat16);
    const at::Tensor sum = at::full_like(x, std::nan("")), out = at::full_like(x, std::nan(""));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    const AddNorm p{
        x.data_ptr(), residual.data_ptr(), scale.data_ptr(), shift.data_ptr(), sum.data_ptr(), out.data_ptr(), rows};
    const double ms = median_ms([&] { launch_add_norm_768(p, stream); });
    const at::Tensor wide = (x + residual).to(at::kDouble);
    const at::Tensor expected = at::layer_norm(wide, {768}, scale.to(at::kDouble), shift.to(at::kDouble), 1e-5);
    record.set("ms", ms)
        .set("TB/s", 4.0 * rows * 768 * 2 / ms / 1e9)
        .set("relative_error", relative_error(out, expected));
    at::Tensor z, y;
    record.set("aten_ms", median_ms([&] {
                 z = x + residual;
                 y = at::layer_norm(z, {768}, scale, shift, 1e-5);
               }));
  });
}

}  // namespace probe
