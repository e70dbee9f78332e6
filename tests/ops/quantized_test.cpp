#include "gputrain/ops/quantized.hpp"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "../../src/ops/cpu/quantized.hpp"
#include "ops/compare.hpp"
#include "support/python_reference.hpp"

namespace gputrain::ops {
namespace {

/// What bitsandbytes makes of a matrix.
class Case {
 public:
  Case(const c10::IValue& value, size_t index) : fields_(value.toGenericDict()), index_(index) {}

  bool has(const std::string& name) const { return fields_.contains(name); }
  at::Tensor tensor(const std::string& name) const { return fields_.at(name).toTensor(); }
  Codebook book() const { return fields_.at("book").toStringRef() == "nf4" ? Codebook::nf4 : Codebook::fp4; }
  int64_t block() const { return fields_.at("block").toInt(); }
  std::string name() const {
    std::string text = "case " + std::to_string(index_) + ", " + c10::toString(tensor("matrix").scalar_type());
    for (const int64_t size : tensor("matrix").sizes()) text += " " + std::to_string(size);
    if (has("block")) text += ", " + fields_.at("book").toStringRef() + " in blocks of " + std::to_string(block());
    return text + (has("scale_scales") ? ", quantised scales" : "");
  }

 private:
  c10::Dict<c10::IValue, c10::IValue> fields_;
  size_t index_;
};

std::vector<Case> cases() {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("gputrain_quantized_" + std::to_string(::getpid()));
  EXPECT_TRUE(gputrain::testing::run_reference("ops/quantized_reference.py", {file.string()}));
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(file);
  std::vector<Case> all;
  const c10::IValue loaded = torch::jit::pickle_load(bytes);
  for (const c10::IValue& each : loaded.toListRef()) all.emplace_back(each, all.size());
  return all;
}

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.numel() == other.numel() &&
         std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

/// A tensor filled with what nothing writes.
at::Tensor poisoned_like(const at::Tensor& tensor) { return at::full(tensor.sizes(), 77, tensor.options()); }

Quantized4 room_for(const Case& one) {
  Quantized4 room{.book = one.book(),
                  .block = one.block(),
                  .codes = poisoned_like(one.tensor("codes")),
                  .scales = poisoned_like(one.tensor("scales"))};
  if (one.has("scale_scales")) {
    room.scale_scales = poisoned_like(one.tensor("scale_scales"));
    room.scale_offset = poisoned_like(one.tensor("scale_offset"));
  }
  return room;
}

/// Values are rounded to the type of the matrix first, then to the asked type.
template <class Matrix>
void expect_values(const Case& one, const Matrix& quantized) {
  const at::Tensor values = one.tensor("values");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor found = at::full(values.sizes(), 77, type);
    dequantize(quantized, values.scalar_type(), found);
    EXPECT_TRUE(same_bits(found, values.to(type))) << one.name() << ", values as " << c10::toString(type);
  }
}

TEST(Quantized, HasTheBitsOfBitsandbytes) {
  GPUTRAIN_NEED_REFERENCE("bitsandbytes");
  int in_4_bits = 0, in_8_bits = 0;
  for (const Case& one : cases()) {
    const bool has_4_bits = one.has("block");
    ++(has_4_bits ? in_4_bits : in_8_bits);
    const QuantizedRows rows{poisoned_like(one.tensor("codes")), poisoned_like(one.tensor("scales"))};
    const Quantized4 blocks = has_4_bits ? room_for(one) : Quantized4{};
    has_4_bits ? quantize(one.tensor("matrix"), blocks) : quantize(one.tensor("matrix"), rows);
    EXPECT_TRUE(same_bits(has_4_bits ? blocks.codes : rows.codes, one.tensor("codes"))) << one.name();
    EXPECT_TRUE(same_bits(has_4_bits ? blocks.scales : rows.scales, one.tensor("scales"))) << one.name();
    if (one.has("scale_scales")) {
      EXPECT_TRUE(same_bits(blocks.scale_scales, one.tensor("scale_scales"))) << one.name();
      EXPECT_TRUE(same_bits(blocks.scale_offset, one.tensor("scale_offset"))) << one.name();
    }
    has_4_bits ? expect_values(one, blocks) : expect_values(one, rows);
    if (HasFailure()) return;
  }
  EXPECT_GE(in_4_bits, 200);
  EXPECT_GE(in_8_bits, 40);
}

/// Quantises on a number of threads by each instruction set, and reads what it got into fp32 and the matrix' type.
std::vector<std::vector<at::Tensor>> results_of_all(const at::Tensor& matrix, const Quantized4& blocks,
                                                    const QuantizedRows& rows) {
  std::vector<std::vector<at::Tensor>> all;
  const int threads_before = at::get_num_threads();
  for (const auto* const* set = cpu::available_quantized_kernels(); *set != nullptr; ++set) {
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      cpu::quantize(matrix, blocks, **set);
      cpu::quantize(matrix, rows, **set);
      std::vector<at::Tensor>& results = all.emplace_back();
      for (const at::Tensor& one : {blocks.codes, blocks.scales, rows.codes, rows.scales})
        results.push_back(one.clone());
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        for (const at::ScalarType stored : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
          results.push_back(at::full(matrix.sizes(), 77, type));
          cpu::dequantize(blocks, stored, results.back(), **set);
          results.push_back(at::full(matrix.sizes(), 77, type));
          cpu::dequantize(rows, stored, results.back(), **set);
        }
      }
    }
  }
  at::set_num_threads(threads_before);
  return all;
}

TEST(Quantized, HasTheSameBitsOnAnyInstructionSetAndThreadCount) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor matrix = testing_support::random_leaf({97, 301}, 3, at::kFloat).detach().to(type);
    const at::Tensor codes = at::empty({97 * 301 / 2 + 1}, at::kByte),
                     scales = at::empty({97 * 301 / 64 + 1}, at::kFloat);
    const QuantizedRows rows{at::empty(matrix.sizes(), at::kChar), at::empty({97}, at::kFloat)};
    const auto all = results_of_all(matrix, {Codebook::nf4, 64, codes, scales}, rows);
    for (size_t way = 1; way < all.size(); ++way)
      for (size_t i = 0; i < all[0].size(); ++i)
        EXPECT_TRUE(same_bits(all[way][i], all[0][i])) << c10::toString(type) << ", way " << way << ", result " << i;
  }
}

/// The mean of many scales, by a sum that ATen would share out.
TEST(Quantized, HasTheSameScalesOnAnyThreadCount) {
  const at::Tensor matrix = testing_support::random_leaf({1100, 1200}, 4, at::kFloat).detach();
  const int threads_before = at::get_num_threads();
  std::vector<Quantized4> all;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    all.push_back({Codebook::nf4, 32, at::empty({660000}, at::kByte), at::empty({41250}, at::kByte),
                   at::empty({162}, at::kFloat), at::empty({1}, at::kFloat)});
    quantize(matrix, all.back());
  }
  at::set_num_threads(threads_before);
  for (const Quantized4& one : all) {
    EXPECT_TRUE(same_bits(one.scales, all[0].scales));
    EXPECT_TRUE(same_bits(one.scale_scales, all[0].scale_scales));
    EXPECT_TRUE(same_bits(one.scale_offset, all[0].scale_offset));
  }
}

}  // namespace
}  // namespace gputrain::ops
