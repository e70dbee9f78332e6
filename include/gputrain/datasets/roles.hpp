// Folders and files that are named by what their data is for: train, Training, val, test_set.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::datasets {

/// What the data of a folder or file of this name is for, by the usual names in any case: "train", "Training",
/// "train_set", "seg_train", "valid", "dev", "Testing". Empty: the name says nothing of it.
std::optional<data::Split> role_of_name(std::string_view name);

/// The names for each role; empty: none has it. Of several for one role the first.
struct RoleNames {
  std::string train, val, test;

  explicit RoleNames(const std::vector<std::string>& names);
  /// What a model may be evaluated with while it trains.
  const std::string& evaluated() const noexcept { return val.empty() ? test : val; }
};

/// The folders within a folder, or within a tar archive. Throws Error(data).
std::vector<std::string> folders_within(const std::string& path);

}  // namespace gputrain::datasets
