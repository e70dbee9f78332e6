// A hash table from two numbers to two numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gputrain::tokenizers {

class PairTable {
 public:
  struct Value {
    uint32_t rank = kNone;
    int32_t token = -1;

    bool operator==(const Value&) const = default;
  };
  static constexpr uint32_t kNone = UINT32_MAX;  // the rank of what is not in the table

  /// `count`: how many pairs will be inserted.
  explicit PairTable(size_t count) {
    size_t places = 16;
    while (places < 2 * count) places *= 2;
    mask_ = places - 1;
    places_.resize(places);
  }

  Value find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = first(key);; i = (i + 1) & mask_)
      if (places_[i].key == key || places_[i].value.rank == kNone) return places_[i].value;
  }
  /// Inserts a pair; false, and nothing is changed, if it is in the table.
  bool insert(int32_t left, int32_t right, Value value) {
    const uint64_t key = key_of(left, right);
    size_t i = first(key);
    for (; places_[i].value.rank != kNone; i = (i + 1) & mask_)
      if (places_[i].key == key) return false;
    places_[i] = {key, value};
    return true;
  }

 private:
  struct Place {
    uint64_t key = 0;
    Value value;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t first(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15;
    return (key ^ key >> 32) & mask_;
  }

  size_t mask_;
  std::vector<Place> places_;
};

}  // namespace gputrain::tokenizers
