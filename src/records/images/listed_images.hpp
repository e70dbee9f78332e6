// Images named by records, each with a class, a set of classes or numbers.
#pragma once

#include <memory>

#include "../formats/record_file.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Reads a list of images. The path of an image is that below the folder of the list or the one above it, or absolute.
/// Fields: image, and target: int64 for a class, float [classes] of zeros and ones for a set of classes, float
/// [numbers] for numbers; see Target. Throws Error(data) if more records are bad than data.max_bad_fraction allows, or
/// the first image does not exist.
std::unique_ptr<data::Dataset> listed_images(const data::DatasetRequest& request, const RecordFormat& format);

}  // namespace gputrain::records
