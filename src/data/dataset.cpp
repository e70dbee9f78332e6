#include "gputrain/data/dataset.hpp"

#include <fmt/format.h>

#include "gputrain/core/error.hpp"

namespace gputrain::data {

Dataset::~Dataset() = default;

std::shared_ptr<const Dataset> Dataset::part(double, double, Split) const { return nullptr; }

std::vector<std::string> target_names(const Dataset& dataset) {
  std::vector<std::string> names = dataset.class_names();
  if (const auto tokenizer = dataset.tokenizer(); names.empty() && tokenizer) return tokenizer->token_texts();
  return names;
}

std::string content_digits(const Dataset& dataset) {
  try {
    const uint64_t hash = dataset.content_hash();
    return hash == 0 ? "" : fmt::format("{:016x}", hash);
  } catch (const Error&) {
    return "";
  }
}

DatasetCatalog& catalog() {
  static DatasetCatalog datasets("dataset");
  return datasets;
}

}  // namespace gputrain::data
