// Base of samples of one text or two within their frame, with targets of the whole.
#pragma once

#include <string>
#include <vector>

#include "text_samples.hpp"

namespace gputrain::records {

/// Samples with the fields tokens, and token_types where records have two texts that the tokenizer tells apart.
class FramedSamples : public SampleBuilder {
 public:
  void follow(const data::SampleLayout& train) override;
  void settle(std::vector<Draft>& drafts, const std::vector<std::string>* known) override;
  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override;

 protected:
  explicit FramedSamples(const data::DatasetRequest& request) : SampleBuilder(request, 1) {}
  data::SampleLayout layout_of_tokens(const MadeSamples& made) const;
};

}  // namespace gputrain::records
