#include "gputrain/data/dataset.hpp"

#include <functional>
#include <numeric>

#include <c10/core/ScalarType.h>

namespace gputrain::data {

size_t SampleLayout::input_bytes() const {
  const int64_t values = std::accumulate(input_sizes.begin(), input_sizes.end(), int64_t{1}, std::multiplies<>());
  return static_cast<size_t>(values) * c10::elementSize(input_type);
}

size_t SampleLayout::target_count() const {
  return static_cast<size_t>(
      std::accumulate(target_sizes.begin(), target_sizes.end(), int64_t{1}, std::multiplies<>()));
}

Dataset::~Dataset() = default;

std::shared_ptr<const Dataset> Dataset::part(double, double, Role) const { return nullptr; }

std::vector<std::string> target_names(const Dataset& dataset) {
  std::vector<std::string> names = dataset.class_names();
  if (const auto tokenizer = dataset.tokenizer(); names.empty() && tokenizer) return tokenizer->token_texts();
  return names;
}

DatasetCatalog& catalog() {
  static DatasetCatalog datasets("dataset");
  return datasets;
}

}  // namespace gputrain::data
