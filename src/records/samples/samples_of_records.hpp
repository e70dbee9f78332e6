// Samples of a format of records, by the model's input and target.
#pragma once

#include <memory>

#include "../formats/record_file.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Reads the files that the request names; for a folder, those of this format.
std::unique_ptr<data::Dataset> samples_of_records(const data::DatasetRequest& request, const RecordFormat& format);

}  // namespace gputrain::records
