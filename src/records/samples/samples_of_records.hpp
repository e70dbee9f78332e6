// The samples of a format of records: what they are depends on what the model reads, and learns from it.
#pragma once

#include <memory>

#include "gputrain/data/dataset.hpp"
#include "../formats/record_file.hpp"

namespace gputrain::records {

/// Reads the files that the request names; of a folder, those of this format.
std::unique_ptr<data::Dataset> samples_of_records(const data::DatasetRequest& request, const RecordFormat& format);

}  // namespace gputrain::records
