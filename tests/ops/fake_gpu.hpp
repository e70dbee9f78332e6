// A fake GPU with a clock, and ways to compute a product, for tests of KernelAutotuner.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <ATen/ops/mul.h>
#include <unistd.h>

#include "../../src/ops/dispatch/kernel_autotuner.hpp"
#include "ops/compare.hpp"

namespace gputrain::ops {

/// A fake clock in ticks: each way below advances it by its time.
inline double ticks = 0;
inline OpImpl taking(double time, double factor = 1) {
  return [=](const Tensors& t) {
    ticks += time;
    return Tensors{at::mul(at::mul(t[0], t[1]), factor)};
  };
}

inline constexpr KernelAutotuner::Inputs kBoth{.batched = 1, .differentiable = 2};

struct Machine {
  std::filesystem::path file = std::filesystem::temp_directory_path() / fmt_name();
  bool can_measure = true;
  int measured = 0;

  static std::string fmt_name() { return "choices_" + std::to_string(::getpid()) + ".jsonl"; }
  std::filesystem::path run = file.string() + ".run";

  Machine() { clean(); }
  ~Machine() { clean(); }
  void clean() const {
    for (const std::string more : {"", ".run", ".trials"}) std::filesystem::remove_all(file.string() + more);
  }

  KernelAutotuner choice(const std::string& name = "gpu", bool time_counts = true) {
    return KernelAutotuner({.machine = name,
                            .file = file,
                            .time_counts = time_counts,
                            .milliseconds =
                                [this](const std::function<void()>& work) {
                                  ++measured;
                                  const double before = ticks;
                                  work();
                                  return ticks - before;
                                },
                            .can_measure = [this] { return can_measure; }});
  }
};

inline Tensors inputs(int64_t rows = 4) {
  return {testing_support::random_leaf({rows, 3}, 1, at::kFloat), testing_support::random_leaf({3}, 2, at::kFloat)};
}

}  // namespace gputrain::ops
