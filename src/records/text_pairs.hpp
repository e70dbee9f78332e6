// Pairs of texts for embedders: alike, or with a number that says how much; perhaps with a third that is not alike.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "encoded_texts.hpp"
#include "gputrain/data/dataset.hpp"
#include "record_file.hpp"

namespace gputrain::records {

/// Fields tokens, pair_tokens and, if records have them, negative_tokens, ragged; target, a float, if records have a
/// number. The columns are those of sentence-transformers' examples.
class TextPairs final : public data::Dataset {
 public:
  /// Throws Error(data) if more records are bad than data.max_bad_fraction allows.
  TextPairs(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension);

  int64_t size() const override { return stores_[0].size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;  // of the longest of its texts
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;

 private:
  static constexpr size_t kMostTexts = 3;
  struct Outcome;
  void store(std::vector<Outcome>& outcomes, const std::vector<Record>& records, const data::DatasetRequest& request,
             int64_t most);
  void set_layout(int64_t longest);

  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  size_t texts_ = 2;  // of a sample
  bool has_numbers_ = false;
  std::array<TextStore, kMostTexts> stores_;
  std::vector<float> numbers_;
  std::map<int64_t, std::pair<std::string, std::string>> problems_;  // what and where
  std::string files_;
  uint64_t content_hash_ = 0;
  data::SampleLayout layout_;
};

}  // namespace gputrain::records
