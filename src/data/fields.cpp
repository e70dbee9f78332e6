#include "gputrain/data/fields.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace gputrain::data {

int64_t Field::numel() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

size_t Field::bytes() const { return static_cast<size_t>(numel()) * c10::elementSize(type); }

SampleLayout SampleLayout::images(int64_t height, int64_t width, int64_t channels, int64_t classes) {
  SampleLayout layout = values({height, width, channels}, at::kByte, classes);
  layout.fields.front().name = kImage;
  return layout;
}

SampleLayout SampleLayout::images_with_numbers(int64_t height, int64_t width, int64_t channels, int64_t numbers) {
  SampleLayout layout = images(height, width, channels, numbers);
  layout.fields.back() = {
      .name = kTarget, .type = at::kFloat, .sizes = {numbers}, .fill = std::nan(""), .target = true};
  return layout;
}

SampleLayout SampleLayout::masked_images(int64_t height, int64_t width, int64_t channels, int64_t classes) {
  SampleLayout layout = images(height, width, channels, classes);
  layout.fields.back().sizes = {height, width};
  return layout;
}

SampleLayout SampleLayout::tokens(int64_t length, int64_t vocabulary) {
  return {.fields = {{.name = kTokens, .sizes = {length}},
                     {.name = kTarget, .sizes = {length}, .fill = kIgnoreIndex, .target = true}},
          .outputs = vocabulary,
          .vocabulary = vocabulary};
}

SampleLayout SampleLayout::values(std::vector<int64_t> sizes, at::ScalarType type, int64_t classes) {
  return {.fields = {{.name = "values", .type = type, .sizes = std::move(sizes)},
                     {.name = kTarget, .fill = kIgnoreIndex, .target = true}},
          .outputs = classes};
}

const Field* SampleLayout::find(std::string_view name) const noexcept {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

const Field* SampleLayout::target() const noexcept {
  const auto found = std::find_if(fields.begin(), fields.end(), [](const Field& field) { return field.target; });
  return found == fields.end() ? nullptr : &*found;
}

bool SampleLayout::is_image() const noexcept { return input().type == at::kByte && input().sizes.size() == 3; }

int64_t SampleLayout::token_count() const noexcept {
  const Field* tokens = find(kTokens);
  return tokens == nullptr ? 0 : tokens->sizes.front();
}

size_t SampleLayout::bytes() const {
  size_t bytes = 0;
  for (const Field& field : fields) bytes += field.bytes() + (field.ragged ? sizeof(int64_t) : 0);
  return bytes;
}

}  // namespace gputrain::data
