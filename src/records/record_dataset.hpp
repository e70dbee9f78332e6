// Language-model samples from records: each its own sample, or packed into rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples.hpp"
#include "gputrain/data/dataset.hpp"
#include "packing.hpp"
#include "record_file.hpp"

namespace gputrain::records {

/// Examples with what made them. Shared by the parts of a split.
struct ExampleSource {
  Examples examples;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string files;  // "2 files"
  uint64_t content_hash = 0;
  int64_t length = 0;  // the most tokens of a sample
  bool packs = false;
};

/// Reads the files that the request names, and makes examples of their records. Of a folder, the files with this
/// extension. Throws Error(data) if more records are bad than data.max_bad_fraction allows, or nothing is learned.
std::shared_ptr<const ExampleSource> open_records(const data::DatasetRequest& request, ReadRecords read_records,
                                                  const std::string& extension);

/// Fields tokens and target; packed, positions too, and every row has `length` tokens. Otherwise samples differ in
/// length.
class RecordDataset : public data::Dataset {
 public:
  explicit RecordDataset(std::shared_ptr<const ExampleSource> source);  // all examples
  RecordDataset(std::shared_ptr<const ExampleSource> source, std::vector<int64_t> chosen);

  int64_t size() const override;
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return source_->tokenizer; }
  uint64_t content_hash() const override { return source_->content_hash; }
  std::string describe() const override;

  const ExampleSource& source() const noexcept { return *source_; }

 private:
  void read_packed(int64_t index, const data::SampleRow& row) const;

  std::shared_ptr<const ExampleSource> source_;
  std::vector<int64_t> chosen_;  // examples of this part
  PackedRows rows_;              // of places in `chosen_`
  data::SampleLayout layout_;
};

}  // namespace gputrain::records
