#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

Dataset::~Dataset() = default;

std::shared_ptr<const Dataset> Dataset::part(double, double, Role) const { return nullptr; }

std::vector<std::string> target_names(const Dataset& dataset) {
  std::vector<std::string> names = dataset.class_names();
  if (const auto decode = dataset.decoder(); names.empty() && decode) {
    for (int64_t token = 0; token < dataset.layout().num_classes; ++token) names.push_back(decode({&token, 1}));
  }
  return names;
}

DatasetCatalog& catalog() {
  static DatasetCatalog datasets("dataset");
  return datasets;
}

}  // namespace gputrain::data
