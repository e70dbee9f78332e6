// Loops over matrices of 4 or 8 bits a value on a CPU; compiled once per instruction set, as float_kernels.hpp, with
// the same restrictions. All sets give the same bits, on any number of threads: products are rounded before sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../code_book.hpp"

namespace gputrain::ops::cpu {

enum class Number { fp32, bf16, fp16, fp64 };

/// Floats of any type.
struct Numbers {
  Number type;
  const void* data;
};
struct WrittenNumbers {
  Number type;
  void* data;
};

/// 4-bit codes of `count` values in blocks, and their scales: fp32 `scales`, or if those are null, tree[scale_codes[i]]
/// outer_scales[i / kScalesPerOuter] + offset.
struct CodedBlocks {
  int64_t count, block;
  const uint8_t* codes;
  const float* book;  // [16]
  const float* scales;
  const uint8_t* scale_codes;
  const float* tree;  // [256]
  const float* outer_scales;
  float offset;
};

/// 8-bit codes of a matrix with a scale for each row.
struct CodedRows {
  int64_t rows, columns;
  const int8_t* codes;
  const float* scales;
};

struct QuantizedKernels {
  const char* name;
  /// Writes ceil(count / 2) codes, and the scale of each block.
  void (*quantize)(int threads, const Numbers& values, int64_t count, int64_t block, const CodeSteps& steps,
                   uint8_t* codes, float* scales);
  /// Writes values rounded to `stored`, then to the type of `into`.
  void (*dequantize)(int threads, const CodedBlocks& blocks, Number stored, const WrittenNumbers& into);
  /// Rounds values to fp16 first.
  void (*quantize_rows)(int threads, const Numbers& values, int64_t rows, int64_t columns, int8_t* codes,
                        float* scales);
  void (*dequantize_rows)(int threads, const CodedRows& rows, Number stored, const WrittenNumbers& into);
};

/// Kernels that this processor can run, the best first; nullptr ends the list.
const QuantizedKernels* const* available_quantized_kernels();

const QuantizedKernels& quantized_kernels();  // the best

}  // namespace gputrain::ops::cpu
