#include "../../src/nn/random_values.hpp"

#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "gputrain/core/random.hpp"

namespace gputrain::nn {
namespace {

constexpr int64_t kChunks = 500;

std::vector<double> values_of(Draw draw, uint64_t key) {
  std::vector<double> values(kChunks * kRandomChunk);
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    draw(key, static_cast<uint64_t>(chunk), values.data() + chunk * kRandomChunk);
  }
  return values;
}

/// Word i of the random stream; normal values i and i + 1 come from words i and i + 1.
uint32_t word(uint64_t key, size_t i) { return philox(key, i / 4, 0)[i % 4]; }

TEST(RandomValues, AreBoxMullerPairsOfPhiloxWords) {
  const auto unit = [](uint32_t bits) { return (static_cast<long double>(bits) + 0.5L) * 0x1.0p-32L; };
  const std::vector<double> values = values_of(normal_values, 77);
  for (size_t i = 0; i < values.size(); i += 2) {
    const long double radius = std::sqrt(-2 * std::log(unit(word(77, i))));
    const long double angle = 2 * std::numbers::pi_v<long double> * unit(word(77, i + 1));
    ASSERT_NEAR(values[i], static_cast<double>(radius * std::cos(angle)), 4e-15) << i;
    ASSERT_NEAR(values[i + 1], static_cast<double>(radius * std::sin(angle)), 4e-15) << i;
  }
}

TEST(RandomValues, AreWordsThemselvesWhenUniform) {
  const std::vector<double> values = values_of(uniform_values, 78);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], word(78, i) * 0x1.0p-31 - 1) << i;
}

// Weights of a seed must not depend on the CPU that drew them.
TEST(RandomValues, HaveSameBitsInEveryInstructionSet) {
  for (const Draw draw : available_normals()) {
    uint64_t hash = 0;
    for (const double value : values_of(draw, 79)) hash = mix(hash, std::bit_cast<uint64_t>(value));
    EXPECT_EQ(hash, 15730704548407682979U);
  }
}

}  // namespace
}  // namespace gputrain::nn
