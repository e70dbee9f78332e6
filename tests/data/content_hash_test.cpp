#include "gputrain/data/content_hash.hpp"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::data {
namespace {

uint64_t hash_of(const std::vector<std::string>& parts) {
  return content_hash(std::ssize(parts),
                      [&](int64_t i) { return content_of(std::as_bytes(std::span(parts[static_cast<size_t>(i)]))); });
}

TEST(ContentHash, SeesEveryByteOfLittleContent) {
  const std::vector<std::string> parts{std::string(10'000, 'a'), "", std::string(3, 'b')};
  const uint64_t hash = hash_of(parts);
  EXPECT_EQ(hash_of(parts), hash);
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{5000}, size_t{9999}}) {
    auto other = parts;
    other[0][at] = 'x';
    EXPECT_NE(hash_of(other), hash) << at;
  }
  EXPECT_NE(hash_of({parts[0], parts[2], parts[1]}), hash);
  EXPECT_NE(hash_of({parts[0], parts[1]}), hash);
  EXPECT_NE(hash_of({}), 0U);
}

TEST(ContentHash, SeesSizesAndLongChangesOfMuch) {
  std::string much(8 << 20, 'a');
  const uint64_t hash = hash_of({much});
  EXPECT_NE(hash_of({much + "a"}), hash);
  std::fill_n(much.begin() + (3 << 20), 64 << 10, 'b');
  EXPECT_NE(hash_of({much}), hash);
}

TEST(ContentHash, ReadsLittleOfManyParts) {
  std::set<int64_t> read;
  int64_t bytes = 0;
  const auto part = [&](int64_t index) {
    read.insert(index);
    return Content{int64_t{1} << 40, [&](int64_t, std::span<std::byte> to) { bytes += std::ssize(to); }};
  };
  content_hash(100'000, part);
  EXPECT_EQ(std::ssize(read), 256);
  EXPECT_EQ(*read.begin(), 0);
  EXPECT_EQ(*read.rbegin(), 99'999);
  EXPECT_LE(bytes, 1 << 20);
}

}  // namespace
}  // namespace gputrain::data
