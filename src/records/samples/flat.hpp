// Values one after the other: in memory while they are made, or in a file that processes share.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace gputrain::records {

template <class Value>
class Flat {
 public:
  void append(std::span<const Value> more) { own_.insert(own_.end(), more.begin(), more.end()); }
  void push_back(Value value) { own_.push_back(value); }
  /// Refers to values that are kept elsewhere, as long as this lives.
  void view(std::span<const Value> values) { viewed_ = values; }

  std::span<const Value> values() const noexcept { return viewed_.data() != nullptr ? viewed_ : std::span(own_); }
  int64_t size() const noexcept { return std::ssize(values()); }
  Value operator[](size_t index) const noexcept { return values()[index]; }

 private:
  std::vector<Value> own_;
  std::span<const Value> viewed_;
};

}  // namespace gputrain::records
