#include "../../src/data/loading/row_reader.hpp"

#include <array>
#include <atomic>
#include <memory>

#include <gtest/gtest.h>

#include "data/loaded_steps.hpp"
#include "data/numbered_dataset.hpp"

namespace gputrain::data {
namespace {

// Workers finish in any order; the reported sample must not depend on it.
TEST(RowReader, KeepsErrorOfTheLowestRow) {
  const auto dataset = std::make_shared<NumberedDataset>(10);
  dataset->broken = {3, 7};
  LoaderOptions options = options_for(10, 10);
  options.shuffle = false;
  const RowReader reader(dataset, options);
  std::array<std::byte, 10 * 3 * sizeof(int64_t)> inputs{};
  std::array<int64_t, 10> targets{};
  const BatchMemory memory{{.values = inputs.data(), .bytes = 3 * sizeof(int64_t), .element_bytes = sizeof(int64_t)},
                           {.values = reinterpret_cast<std::byte*>(targets.data()),
                            .bytes = sizeof(int64_t),
                            .element_bytes = sizeof(int64_t)}};
  const std::atomic<bool> never = false;
  const auto read = [&](int64_t begin, int64_t end) { return reader.read(0, begin, end, memory, never); };
  for (const int64_t first : {0, 5}) {
    ReadOutcome whole;
    whole.add(read(first, first + 5));
    whole.add(read(5 - first, 10 - first));
    EXPECT_EQ(whole.error_row, 3);
  }
}

}  // namespace
}  // namespace gputrain::data
