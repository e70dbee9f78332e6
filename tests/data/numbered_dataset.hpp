// A dataset whose samples contain their own number, for tests of order and delivery.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "gputrain/core/error.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// Input: [index, epoch, augmented] as int64; target: index.
class NumberedDataset : public Dataset {
 public:
  explicit NumberedDataset(int64_t size) : size_(size) { layout_ = SampleLayout::values({3}, at::kLong, size); }

  int64_t size() const override { return size_; }
  const SampleLayout& layout() const override { return layout_; }
  bool is_cheap_to_read() const override { return cheap; }
  std::string describe() const override { return "numbers"; }

  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override {
    ++reads;
    if (delay_microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_microseconds));
    if (broken.contains(index))
      throw Error(broken_code, {.what = "cannot decode", .where = "img/" + std::to_string(index)});
    const int64_t values[3] = {index, context.epoch, context.augment};
    std::memcpy(row.bytes(0), values, sizeof(values));
    const auto wrong = wrong_labels.find(index);
    *row.values<int64_t>(1) = wrong == wrong_labels.end() ? index : wrong->second;
  }

  bool cheap = true;
  int delay_microseconds = 0;
  std::set<int64_t> broken;
  std::map<int64_t, int64_t> wrong_labels;  // of samples
  ExitCode broken_code = ExitCode::data;
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t size_;
  SampleLayout layout_;
};

}  // namespace gputrain::data
