// Quantised matrices, against the loops for a CPU, bit by bit.
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "../../../src/ops/cpu/quantized.hpp"
#include "gputrain/core/numbers.hpp"
#include "ops/kernels/gpu_case.hpp"

namespace gputrain::ops {
namespace {

using namespace testing_support;
using quantized = void;

class GpuQuantized : public GpuOperators {};

/// Contiguous, but where no pack of values may begin.
at::Tensor shifted(const at::Tensor& tensor) {
  const at::Tensor flat = at::empty({tensor.numel() + 1}, tensor.options());
  return flat.narrow(0, 1, tensor.numel()).view(tensor.sizes()).copy_(tensor);
}

/// Values of many magnitudes; a block or row of zeros, and one that overflows fp16.
at::Tensor matrix_of(at::IntArrayRef sizes, at::ScalarType type) {
  const at::Tensor values = noise(sizes, 5, at::kFloat), flat = values.view({-1});
  flat.mul_(noise(flat.sizes(), 6, at::kFloat).mul(5).exp());
  if (flat.numel() > 300) flat.narrow(0, 64, 200).zero_();
  if (sizes[0] > 4) {
    values[2].zero_();
    values[3].mul_(1e-9);
    values[4][0] = 1e5;
  }
  return values.clamp(-6e4, 1e5).to(type);
}

Quantized4 room_for(const at::Tensor& matrix, Codebook book, int64_t block, bool nested) {
  const int64_t scales = ceil_divide(matrix.numel(), block);
  const auto room = [&](int64_t size, at::ScalarType type) {
    return at::full({size}, 77, matrix.options().dtype(type));
  };
  Quantized4 all{book, block, room(ceil_divide(matrix.numel(), 2), at::kByte),
                 room(scales, nested ? at::kByte : at::kFloat)};
  if (nested) {
    all.scale_scales = room(ceil_divide(scales, kScalesPerBlock), at::kFloat);
    all.scale_offset = room(1, at::kFloat);
  }
  return all;
}

Quantized4 on_cpu(const Quantized4& from) {
  Quantized4 here = from;
  for (at::Tensor* one : {&here.codes, &here.scales, &here.scale_scales, &here.scale_offset})
    if (one->defined()) *one = one->cpu().clone();
  return here;
}

/// Reads into every type, from every stored one; also where packs may not begin.
template <class Quantized>
void expect_same_values(const Quantized& from, const Quantized& here, at::IntArrayRef sizes, const std::string& what) {
  SCOPED_TRACE(what);
  for (const Storage& into : storages()) {
    for (const Storage& stored : storages()) {
      const at::Tensor expected = poisoned(sizes, into.type).cpu(), found = poisoned(sizes, into.type);
      const at::Tensor found_shifted = shifted(found);
      cpu::dequantize(here, stored.type, expected);
      gpu::dequantize(from, stored.type, found);
      gpu::dequantize(from, stored.type, found_shifted);
      expect_same_bits({found.cpu(), found_shifted.cpu()}, {expected, expected});
    }
  }
}

TEST_F(GpuQuantized, HasTheBitsOfACpuInBlocks) {
  const std::vector<std::vector<int64_t>> shapes{{1, 1}, {1, 63}, {7, 65}, {33, 130}, {40, 256}};
  for (const Storage& storage : storages()) {
    for (const auto& shape : shapes) {
      for (const int64_t block : {32, 64, 512, 4096}) {
        const auto book = block % 64 == 0 ? Codebook::nf4 : Codebook::fp4;
        const std::string what =
            std::string(storage.name) + " " + std::to_string(shape[1]) + ", " + std::to_string(block);
        const at::Tensor matrix = matrix_of(shape, storage.type);
        const Quantized4 ours = room_for(matrix, book, block, false), again = room_for(matrix, book, block, false),
                         expected = on_cpu(ours);
        gpu::quantize(matrix, ours);
        gpu::quantize(shifted(matrix), again);
        cpu::quantize(matrix.cpu(), expected);
        expect_same_bits({ours.codes.cpu(), ours.scales.cpu()}, {expected.codes, expected.scales});
        expect_same_bits({again.codes.cpu(), again.scales.cpu()}, {expected.codes, expected.scales});
        expect_same_values(ours, expected, shape, what);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(GpuQuantized, HasTheBitsOfACpuWithQuantizedScales) {
  const at::Tensor matrix = matrix_of({90, 200}, at::kFloat);
  const Quantized4 ours = room_for(matrix, Codebook::nf4, 32, true);
  quantize(matrix, ours);
  expect_same_values(ours, on_cpu(ours), matrix.sizes(), "quantised scales");
}

TEST_F(GpuQuantized, HasTheBitsOfACpuInRows) {
  const std::vector<std::vector<int64_t>> shapes{{1, 1}, {5, 7}, {6, 64}, {5, 2056}, {5, 1030}};
  for (const Storage& storage : storages()) {
    for (const auto& shape : shapes) {
      const at::Tensor matrix = matrix_of(shape, storage.type);
      const auto room = [&] { return QuantizedRows{poisoned(shape, at::kChar), poisoned({shape[0]}, at::kFloat)}; };
      const QuantizedRows ours = room(), again = room(), expected{ours.codes.cpu().clone(), ours.scales.cpu().clone()};
      gpu::quantize(matrix, ours);
      gpu::quantize(shifted(matrix), again);
      cpu::quantize(matrix.cpu(), expected);
      expect_same_bits({ours.codes.cpu(), ours.scales.cpu()}, {expected.codes, expected.scales});
      expect_same_bits({again.codes.cpu(), again.scales.cpu()}, {expected.codes, expected.scales});
      expect_same_values(ours, expected, shape, std::string(storage.name) + " " + std::to_string(shape[1]));
      if (HasFailure()) return;
    }
  }
}

/// Kernels have no fp64; a matrix of it is read through fp32.
TEST_F(GpuQuantized, TakesDoubles) {
  const at::Tensor matrix = matrix_of({33, 65}, at::kDouble), single = matrix.to(at::kFloat);
  const Quantized4 ours = room_for(matrix, Codebook::nf4, 64, true),
                   expected = room_for(single, Codebook::nf4, 64, true);
  quantize(matrix, ours);
  quantize(single, expected);
  expect_same_bits({ours.codes.cpu(), ours.scales.cpu()}, {expected.codes.cpu(), expected.scales.cpu()});
  const at::Tensor values = poisoned(matrix.sizes(), at::kDouble), singles = poisoned(matrix.sizes(), at::kFloat);
  dequantize(ours, at::kBFloat16, values);
  dequantize(ours, at::kBFloat16, singles);
  expect_same_bits({values.cpu()}, {singles.to(at::kDouble).cpu()});
}

}  // namespace
}  // namespace gputrain::ops
