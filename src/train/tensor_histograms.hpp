// Histograms of tensors, computed where the tensors are.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/monitor/record.hpp"

namespace gputrain::train {

inline constexpr int64_t kHistogramBins = 64;

/// The facts about values that a histogram needs before it counts them. At first: of no values.
struct Spread {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  double sum = 0, sum_of_squares = 0;  // the latter is not finite if a value is not

  void add(const Spread& other);
  bool has_bins() const noexcept;
};

/// Returns the spreads of flat tensors of one type on one device, which may be empty. Waits for the device once.
std::vector<Spread> spreads_of(const std::vector<at::Tensor>& flats);

/// Combines the spreads of tensors of which each rank has a part. Every rank must call.
std::vector<Spread> over_ranks(const std::vector<Spread>& spreads, comm::ProcessGroups& groups);

/// Counts the values of each tensor in each bin of its spread: [tensors, kHistogramBins] doubles on `device`.
at::Tensor counts_of(const std::vector<at::Tensor>& flats, const std::vector<Spread>& spreads, at::Device device);

/// Makes the histogram of `factor` times the values from a row of counts on the CPU.
monitor::Histogram histogram_of(const Spread& spread, const at::Tensor& counts, double factor);

}  // namespace gputrain::train
