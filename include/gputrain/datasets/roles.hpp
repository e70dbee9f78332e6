// Folders and files that are named by the use of their data: train, Training, val, test_set.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::datasets {

/// Returns the use of the data of a folder or file of this name, by the usual names in any case: "train", "Training",
/// "train_set", "seg_train", "valid", "dev", "Testing". Empty: the name does not tell.
std::optional<data::Split> role_of_name(std::string_view name);

/// Names for each role, the first if there are several; empty: none has it.
struct RoleNames {
  std::string train, val, test;

  explicit RoleNames(const std::vector<std::string>& names);
  /// Returns the name of the data that a model may be evaluated with while it trains.
  const std::string& evaluated() const noexcept { return val.empty() ? test : val; }
};

/// Returns the folders within a folder, or within a tar archive. Throws Error(data).
std::vector<std::string> folders_within(const std::string& path);

}  // namespace gputrain::datasets
