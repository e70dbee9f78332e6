#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

Dataset::~Dataset() = default;

std::shared_ptr<const Dataset> Dataset::part(double, double, Split) const { return nullptr; }

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
