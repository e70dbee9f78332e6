// Matrices of 4 or 8 bits a value with scales, as bitsandbytes stores them: QLoRA (Dettmers et al., arXiv:2305.14314)
// and LLM.int8() (Dettmers et al., arXiv:2208.07339). Codes and scales are equal to those of bitsandbytes bit for bit.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gputrain::ops {

/// The 16 values that 4 bits stand for, in the order of the codes.
enum class Codebook { nf4, fp4 };
const std::array<float, 16>& values_of(Codebook book);

/// A matrix, flat in row order, in blocks that share a scale, the largest absolute value of the block. All tensors are
/// contiguous.
struct Quantized4 {
  Codebook book = Codebook::nf4;
  int64_t block = 64;  // values of a block, a power of two from 32 to 4096; the last one may have fewer
  at::Tensor codes;    // uint8 [ceil(values / 2)]; the first of two values stands in the high half
  at::Tensor scales;   // fp32 [ceil(values / block)], or uint8 if the scales are quantised too
  // For scales that are quantised: scales of 256 of them each, and their mean, which is subtracted first, fp32 [1].
  at::Tensor scale_scales = {}, scale_offset = {};

  bool has_quantized_scales() const { return scale_scales.defined(); }
};

/// The scales that share a scale of their own.
inline constexpr int64_t kScalesPerBlock = 256;
/// The values that their codes stand for, ascending.
const std::array<float, 256>& scale_values();

/// Writes codes and scales of a contiguous matrix of floats on the same device.
void quantize(const at::Tensor& matrix, const Quantized4& into);
/// Writes the values into a contiguous matrix of floats on the same device. They are rounded to `stored`, the type of
/// the matrix that was quantised, and then to the type of `into`.
void dequantize(const Quantized4& from, at::ScalarType stored, const at::Tensor& into);

/// A matrix with a scale for each row, the largest absolute value of the row. All tensors are contiguous.
struct QuantizedRows {
  at::Tensor codes;   // int8 [rows, columns]
  at::Tensor scales;  // fp32 [rows]
};
/// Does the same. Values beyond fp16's largest become infinite, as in bitsandbytes, which casts to fp16 first.
void quantize(const at::Tensor& matrix, const QuantizedRows& into);
void dequantize(const QuantizedRows& from, at::ScalarType stored, const at::Tensor& into);

}  // namespace gputrain::ops
