#include "gputrain/nn/key_values.hpp"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace gputrain::nn {
namespace {

/// Appends texts of these lengths and compares with all of them side by side.
void expect_all(KeyValues& earlier, std::vector<at::Tensor>& keys, std::vector<at::Tensor>& values,
                const std::vector<int64_t>& lengths) {
  for (const int64_t length : lengths) {
    keys.push_back(at::randn({3, 2, length, 4}));
    values.push_back(at::randn({3, 2, length, 4}));
    earlier.append(keys.back(), values.back());
    EXPECT_TRUE(earlier.keys().equal(at::cat(keys, 2)));
    EXPECT_TRUE(earlier.values().equal(at::cat(values, 2)));
    EXPECT_EQ(earlier.length(), earlier.keys().size(2));
  }
}

TEST(KeyValues, KeepWhatIsAppended) {
  KeyValues earlier;
  std::vector<at::Tensor> keys, values;
  expect_all(earlier, keys, values, {5, 1});
  const at::NoGradGuard no_grad;
  expect_all(earlier, keys, values, {1, 1, 80, 1, 200, 1});
}

TEST(KeyValues, GrowInPlaceWithoutGradients) {
  const at::NoGradGuard no_grad;
  KeyValues earlier;
  int copies = 0;
  const void* place = nullptr;
  for (int i = 0; i < 1000; ++i) {
    earlier.append(at::randn({1, 2, 1, 4}), at::randn({1, 2, 1, 4}));
    if (earlier.keys().const_data_ptr() != place) ++copies;
    place = earlier.keys().const_data_ptr();
  }
  EXPECT_EQ(copies, 5);  // of 64, 128, ..., 1024 tokens
}

TEST(KeyValues, GoOnWithSomeRows) {
  const at::NoGradGuard no_grad;
  KeyValues earlier;
  std::vector<at::Tensor> keys, values;
  expect_all(earlier, keys, values, {5, 1});
  const at::Tensor rows = at::tensor({2, 0}, at::kLong), more = at::randn({2, 2, 1, 4});
  earlier.keep_rows(rows);
  earlier.append(more, more);
  EXPECT_TRUE(earlier.keys().equal(at::cat({at::cat(keys, 2).index_select(0, rows), more}, 2)));
  EXPECT_TRUE(earlier.values().equal(at::cat({at::cat(values, 2).index_select(0, rows), more}, 2)));
}

}  // namespace
}  // namespace gputrain::nn
