// The numbers that initial weights are drawn from: each is a function of (key, its index) alone.
#pragma once

#include <cstdint>
#include <vector>

namespace gputrain::nn {

inline constexpr int64_t kRandomChunk = 128;  // values made at a time, from 32 blocks of Philox4x32-10

/// Values [kRandomChunk * chunk, ...) of a standard normal distribution, in pairs after Box and Muller ("A note on the
/// generation of random normal deviates", 1958). The same bits on every processor.
void normal_values(uint64_t key, uint64_t chunk, double* values);

using Draw = void (*)(uint64_t key, uint64_t chunk, double* values);

/// normal_values for each instruction set that this processor has, the best first.
std::vector<Draw> available_normals();

/// As normal_values, uniform in [-1, 1).
void uniform_values(uint64_t key, uint64_t chunk, double* values);

}  // namespace gputrain::nn
