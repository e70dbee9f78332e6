#include "gputrain/device/numerics.hpp"

#include <cstdlib>
#include <string>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {
namespace {

// ATen has two sets of TF32 flags, and throws when one is read while they disagree.
void expect_tf32(bool expected) {
  const at::Context& context = at::globalContext();
  EXPECT_EQ(context.allowTF32CuBLAS(), expected);
  EXPECT_EQ(context.allowTF32CuDNN(), expected);
  EXPECT_EQ(context.allowTF32CuDNN(at::Float32Op::CONV), expected);
  for (const auto op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
    EXPECT_EQ(context.float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32, expected);
  }
}

TEST(Numerics, SwitchesTf32OfGemmAndConvolution) {
  for (const bool on : {true, false, true, false}) {
    apply({.tf32 = on}, at::kCPU);
    expect_tf32(on);
  }
}

TEST(Numerics, TurnsAutotuningOffWhenDeterministic) {
  apply({.deterministic = true}, at::kCPU);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  apply({}, at::kCPU);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
}

TEST(Numerics, RefusesNondeterministicWorkspace) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  try {
    apply({.deterministic = true}, at::kCPU);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
    EXPECT_NE(std::string(error.what()).find("CUBLAS_WORKSPACE_CONFIG=:0:0"), std::string::npos);
  }
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

TEST(Numerics, Adds16BitProductsInFp32) {
  apply({}, at::kCPU);
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_EQ(at::globalContext().allowFP16ReductionCuBLAS(),
            at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
}

}  // namespace
}  // namespace gputrain::device
