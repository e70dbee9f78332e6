#include "samples_of_records.hpp"

#include "../images/listed_images.hpp"
#include "text_samples.hpp"

namespace gputrain::records {

std::unique_ptr<data::Dataset> samples_of_records(const data::DatasetRequest& request, const RecordFormat& format) {
  if (!request.model.reads_tokens()) return listed_images(request, format);
  return std::make_unique<TextSamples>(request, format);
}

}  // namespace gputrain::records
