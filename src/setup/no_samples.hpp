// Training data of which all is known but the samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::app {

class NoSamples final : public data::Dataset {
 public:
  NoSamples(data::SampleLayout layout, std::vector<std::string> class_names,
            std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
            std::optional<data::Normalization> normalization = {})
      : layout_(std::move(layout)),
        class_names_(std::move(class_names)),
        tokenizer_(std::move(tokenizer)),
        normalization_(std::move(normalization)) {}

  int64_t size() const override { return 0; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t, const data::ReadContext&, const data::SampleRow&) const override {
    GPUTRAIN_ASSERT(false, "there are no samples");
  }
  std::optional<data::Normalization> normalization() const override { return normalization_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  std::string describe() const override { return "no samples"; }

 private:
  data::SampleLayout layout_;
  std::vector<std::string> class_names_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::optional<data::Normalization> normalization_;
};

}  // namespace gputrain::app
