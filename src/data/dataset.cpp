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

std::vector<int64_t> class_counts(const Dataset& dataset) {
  std::vector<int64_t> counts(static_cast<size_t>(dataset.layout().outputs));
  bool is_any_known = false;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const std::optional<int64_t> known = dataset.class_of(i);
    if (!known) continue;
    is_any_known = true;
    ++counts.at(static_cast<size_t>(*known));
  }
  if (!is_any_known)
    throw Error(ExitCode::usage, {.what = "the classes of these samples are not known before they are read, so that "
                                          "nothing can be counted",
                                  .where = "data.train",
                                  .hint = "give the numbers of task.config.class_weights"});
  return counts;
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
