#include "samples_of_records.hpp"

#include "listed_images.hpp"
#include "text_samples.hpp"

namespace gputrain::records {

std::shared_ptr<const data::Dataset> samples_of_records(const data::DatasetRequest& request, ReadRecords read_records,
                                                        const std::string& extension) {
  if (!request.model.reads_tokens()) return listed_images(request, read_records, extension);
  return std::make_shared<TextSamples>(request, read_records, extension);
}

}  // namespace gputrain::records
