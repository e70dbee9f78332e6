// Compiled with -O3 and without contraction (CMakeLists.txt): GCC vectorises the loops over lanes, and every
// instruction set does the same additions and multiplications in the same order. No math library is called, because the
// last bits differ between libraries.
#include "random_values.hpp"

#include <numbers>

#include "gputrain/core/random.hpp"
#include "gputrain/device/host.hpp"

namespace gputrain::nn {
namespace {

constexpr int kLanes = kRandomChunk / 4;  // blocks of four words

/// Word w of block l is words[w][l].
struct Blocks {
  uint32_t words[4][kLanes];
};

[[gnu::always_inline]] inline void philox_blocks(uint64_t key, uint64_t first, Blocks& blocks) {
  for (int l = 0; l < kLanes; ++l) {
    const auto block = philox(key, first + static_cast<uint64_t>(l), 0);
    for (size_t w = 0; w < 4; ++w) blocks.words[w][l] = block[w];
  }
}

// Converts through int32: SSE2 has no vector conversion for other integers.
[[gnu::always_inline]] inline double signed_half_open(uint32_t bits) {
  return static_cast<double>(static_cast<int32_t>(bits)) + 0.5;
}

// (bits + 1/2) / 2^32, in (0, 1): never 0, because log(0) is infinite.
[[gnu::always_inline]] inline double open_unit(uint32_t bits) {
  return (signed_half_open(bits ^ 0x80000000U) + 0x1.0p31) * 0x1.0p-32;
}

// ln x for x in (0, 1): with x = 2^n m, m from sqrt(1/2) to sqrt(2), s = (m - 1) / (m + 1): n ln 2 + 2 artanh(s).
[[gnu::always_inline]] inline double logarithm(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD, kOne = 0x3FF0000000000000;
  const auto bits = __builtin_bit_cast(uint64_t, x) + (kOne - kSqrtHalf);
  const double m = __builtin_bit_cast(double, (bits & 0x000FFFFFFFFFFFFF) + kSqrtHalf);
  // Converts an integer below 2^52 by placing it in the low bits of the double 2^52.
  const double n = __builtin_bit_cast(double, (bits >> 52) | 0x4330000000000000) - (0x1.0p52 + 1023);
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 21;
  for (int odd = 19; odd > 1; odd -= 2) sum = sum * z + 1.0 / odd;
  return n * std::numbers::ln2 + 2 * (s + s * (z * sum));
}

struct Point {
  double x, y;
};

// Point on the unit circle at (bits + 1/2) / 2^32 of a turn, reduced to an eighth of a turn from the nearest axis.
[[gnu::always_inline]] inline Point on_circle(uint32_t bits) {
  const uint32_t axis = (bits + (1U << 29)) >> 30;
  const double angle = signed_half_open(bits - (axis << 30)) * (std::numbers::pi * 0x1.0p-31), z = angle * angle;
  double sine = 1, cosine = 1;
  for (int n = 16; n > 0; n -= 2) {  // nested Taylor series: adds the smallest term first
    sine = 1 - z * (1.0 / (n * (n + 1))) * sine;
    cosine = 1 - z * (1.0 / (n * (n - 1))) * cosine;
  }
  sine *= angle;
  const bool is_vertical = (axis & 1) != 0;
  const double x = is_vertical ? sine : cosine, y = is_vertical ? cosine : sine;
  return {((axis + 1) & 2) != 0 ? -x : x, (axis & 2) != 0 ? -y : y};
}

[[gnu::always_inline]] inline void normals(uint64_t key, uint64_t chunk, double* values) {
  Blocks blocks;
  double x[2][kLanes], y[2][kLanes];
  philox_blocks(key, chunk * kLanes, blocks);
  for (int pair = 0; pair < 2; ++pair) {
    for (int l = 0; l < kLanes; ++l) {
      const double radius = __builtin_sqrt(-2 * logarithm(open_unit(blocks.words[2 * pair][l])));
      const Point point = on_circle(blocks.words[2 * pair + 1][l]);
      x[pair][l] = radius * point.x;
      y[pair][l] = radius * point.y;
    }
  }
  for (int l = 0; l < kLanes; ++l) {
    for (int pair = 0; pair < 2; ++pair) {
      values[4 * l + 2 * pair] = x[pair][l];
      values[4 * l + 2 * pair + 1] = y[pair][l];
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512dq,avx512vl")]] void normals_avx512(uint64_t key, uint64_t chunk, double* values) {
  normals(key, chunk, values);
}
[[gnu::target("avx2")]] void normals_avx2(uint64_t key, uint64_t chunk, double* values) { normals(key, chunk, values); }
#endif
void normals_base(uint64_t key, uint64_t chunk, double* values) { normals(key, chunk, values); }

}  // namespace

std::vector<Draw> available_normals() {
  std::vector<Draw> found;
#if defined(__x86_64__)
  const auto units = device::vector_units();
  if (units >= device::VectorUnits::avx512) found.push_back(normals_avx512);
  if (units >= device::VectorUnits::avx2) found.push_back(normals_avx2);
#endif
  found.push_back(normals_base);
  return found;
}

void normal_values(uint64_t key, uint64_t chunk, double* values) {
  static const Draw draw = available_normals().front();
  draw(key, chunk, values);
}

void uniform_values(uint64_t key, uint64_t chunk, double* values) {
  Blocks blocks;
  philox_blocks(key, chunk * kLanes, blocks);
  for (int l = 0; l < kLanes; ++l) {
    for (int w = 0; w < 4; ++w) values[4 * l + w] = static_cast<double>(blocks.words[w][l]) * 0x1.0p-31 - 1;
  }
}

}  // namespace gputrain::nn
