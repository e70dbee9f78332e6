// Random numbers for initial weights: each depends only on (key, its index).
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::nn {

inline constexpr int64_t kRandomChunk = 128;  // values per call, from 32 blocks of Philox4x32-10

/// Values [kRandomChunk * chunk, ...) of a standard normal distribution, in pairs by Box and Muller ("A note on the
/// generation of random normal deviates", 1958). The same bits on every processor.
void normal_values(uint64_t key, uint64_t chunk, double* values);

using Draw = void (*)(uint64_t key, uint64_t chunk, double* values);

/// Returns normal_values for each instruction set of this processor, the best first.
std::vector<Draw> available_normals();

/// Draws like normal_values, but uniform in [-1, 1).
void uniform_values(uint64_t key, uint64_t chunk, double* values);

}  // namespace gputrain::nn
