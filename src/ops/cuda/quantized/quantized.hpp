// Matrices of 4 or 8 bits a value: gputrain/ops/quantized.hpp. The bits are those of the loops for a CPU.
#pragma once

#include "../../code_book.hpp"
#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

struct QuantizeBlocks {
  const void* values;
  Element element;
  int64_t count;
  int block;
  CodeSteps steps;
  uint8_t* codes;  // [ceil(count / 2)]
  float* scales;   // [ceil(count / block)]
};
void quantize_blocks(const QuantizeBlocks& p, Stream stream);

struct DequantizeBlocks {
  const uint8_t* codes;
  int64_t count;
  int block;
  const float* scales;  // null: tree[scale_codes[i]] outer_scales[i / kScalesPerOuter] + *offset
  const uint8_t* scale_codes;
  const float* outer_scales;
  const float* offset;  // [1], on the device
  float book[16], tree[256];
  Element stored;  // the values' type between fp32 and that of `into`
  void* into;
  Element element;
};
void dequantize_blocks(const DequantizeBlocks& p, Stream stream);

struct QuantizeRows {
  const void* values;
  Element element;
  int64_t rows, columns;
  int8_t* codes;
  float* scales;  // [rows]
};
void quantize_rows(const QuantizeRows& p, Stream stream);

struct DequantizeRows {
  const int8_t* codes;
  const float* scales;
  int64_t rows, columns;
  Element stored;
  void* into;
  Element element;
};
void dequantize_rows(const DequantizeRows& p, Stream stream);

}  // namespace gputrain::ops::cuda
