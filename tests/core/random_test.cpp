#include "gputrain/core/random.hpp"

#include <array>

#include <gtest/gtest.h>

namespace gputrain {
namespace {

// Known answers for philox4x32-10 from Random123's kat_vectors.
TEST(Philox, MatchesPublishedAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DrawsUniformlyBelowABound) {
  RandomStream random(7, 3);
  std::array<int, 6> counts{};
  for (int i = 0; i < 60000; ++i) counts[static_cast<size_t>(random.below(6))]++;
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
}

TEST(RandomStream, DrawsUniformlyFromUnitInterval) {
  RandomStream random(7, 3);
  std::array<int, 10> counts{};
  for (int i = 0; i < 100000; ++i) {
    const double drawn = random.uniform();
    ASSERT_TRUE(drawn >= 0 && drawn < 1) << drawn;
    counts[static_cast<size_t>(drawn * 10)]++;
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(RandomStream, RepeatsOnlyForSameSeedAndStream) {
  RandomStream first(1, 2), second(1, 2), other(1, 3);
  EXPECT_EQ(first.uniform(), second.uniform());
  EXPECT_NE(first.uniform(), other.uniform());
}

}  // namespace
}  // namespace gputrain
