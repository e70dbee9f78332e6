// Remembers the tokens of short words.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace gputrain::tokenizers {

/// Bounded: a word takes the place of another. A place is one cache line. Not for two threads at once.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 35;  // bytes

  struct Place {
    std::array<int32_t, 6> tokens;
    uint8_t count = 0;
    uint8_t length = 0;  // length of the word; 0: empty
    std::array<char, kLongestWord> word;

    std::span<const int32_t> view() const { return {tokens.data(), count}; }
  };
  static_assert(sizeof(Place) <= 64);

  WordCache() : places_(kPlaces) {}

  /// Returns the place for this word, of at most kLongestWord bytes.
  Place& place(std::string_view word) { return places_[hash(word) >> (64 - kBits)]; }

  static bool holds(const Place& place, std::string_view word) {
    return place.length == word.size() && std::memcmp(place.word.data(), word.data(), word.size()) == 0;
  }
  /// Puts a word there, if it has few enough tokens.
  static void put(Place& place, std::string_view word, std::span<const int32_t> tokens) {
    if (tokens.size() > place.tokens.size()) return;
    std::copy(tokens.begin(), tokens.end(), place.tokens.begin());
    std::memcpy(place.word.data(), word.data(), word.size());
    place.count = static_cast<uint8_t>(tokens.size());
    place.length = static_cast<uint8_t>(word.size());
  }

 private:
  static constexpr int kBits = 16;
  static constexpr size_t kPlaces = size_t{1} << kBits;

  static uint64_t hash(std::string_view word) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
    uint64_t sum = word.size() * kOdd;
    const char* at = word.data();
    size_t left = word.size();
    for (; left >= 8; left -= 8, at += 8) {
      uint64_t part;
      std::memcpy(&part, at, 8);
      sum = mixed(sum ^ part);
    }
    uint64_t part = 0;
    if (left >= 4) {  // two reads that overlap, for memcpy() of a size unknown to the compiler is a call
      uint32_t low, high;
      std::memcpy(&low, at, 4);
      std::memcpy(&high, at + left - 4, 4);
      part = uint64_t{high} << 32 | low;
    } else {
      for (size_t i = 0; i < left; ++i) part = part << 8 | static_cast<unsigned char>(at[i]);
    }
    return mixed(sum ^ part);
  }
  static uint64_t mixed(uint64_t value) {
    value *= 0xD6E8FEB86659FD93;
    value ^= value >> 32;
    return value * 0xD6E8FEB86659FD93;
  }

  std::vector<Place> places_;
};

}  // namespace gputrain::tokenizers
