// Names of the classes that a model's last layer tells apart, one for each of its rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::models {

/// The help of `labels`, an option of models that have a config.json.
inline constexpr const char* kLabelsHelp =
    "names of the classes, for the config.json beside the weights, where the data has none; not used if there are "
    "more or fewer classes";

/// The names in a config.json (`id2label`, or timm's `label_names`) in order of their numbers. Empty: it has none, or
/// numbers alone ("LABEL_0").
std::vector<std::string> class_names_in(const nlohmann::json& config);

/// For each row of a layer in the order of `ours` the row of a layer in the order of `theirs`, by the names or, where
/// these do not fit, by their lower case. Further rows of theirs follow. Empty: some of our names are not among theirs.
std::vector<int64_t> rows_by_name(const std::vector<std::string>& theirs, const std::vector<std::string>& ours);

/// The names of a layer's rows: those of the data; the given ones, the data's first, if all of the data's are among
/// them; else empty.
std::vector<std::string> names_of_rows(int64_t rows, const std::vector<std::string>& of_data,
                                       const std::vector<std::string>& given);

}  // namespace gputrain::models
