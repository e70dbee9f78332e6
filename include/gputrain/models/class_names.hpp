// Names of a model's classes, one for each row of its last layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::models {

/// Help text of `labels`, an option of models that have a config.json.
inline constexpr const char* kLabelsHelp =
    "names of the classes, for the config.json beside the weights, where the data has none; not used if there are "
    "more or fewer classes";

/// Returns the names in a config.json (`id2label`, or timm's `label_names`) in order of their numbers. Empty: it has
/// none, or only numbers ("LABEL_0").
std::vector<std::string> class_names_in(const nlohmann::json& config);

/// Returns for each of our rows the row of theirs with the same name, ignoring case where the exact names do not fit.
/// Their remaining rows follow. Empty: some of our names are not among theirs.
std::vector<int64_t> rows_by_name(const std::vector<std::string>& theirs, const std::vector<std::string>& ours);

/// Returns the names of a layer's rows: those of the data if there is one per row; else the given ones, the data's
/// first, if they include all of the data's; else those of the data, which then are the names of the first rows.
std::vector<std::string> names_of_rows(int64_t rows, const std::vector<std::string>& of_data,
                                       const std::vector<std::string>& given);

}  // namespace gputrain::models
