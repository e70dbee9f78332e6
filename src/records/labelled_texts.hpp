// Texts, or pairs of texts, each with a class, a set of classes or a number.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "encoded_texts.hpp"
#include "gputrain/data/dataset.hpp"
#include "labels.hpp"
#include "record_file.hpp"

namespace gputrain::records {

/// Fields: tokens, token_types where records have two texts that the tokenizer tells apart, and target: int64 for a
/// class, float for a number, float [classes] of zeros and ones for a set of classes.
class LabelledTexts final : public data::Dataset {
 public:
  /// Throws Error(data) if more records are bad than data.max_bad_fraction allows.
  LabelledTexts(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension);

  int64_t size() const override { return texts_.size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;
  bool is_cheap_to_read() const override { return true; }
  std::vector<std::string> class_names() const override { return classes_; }
  std::optional<int64_t> class_of(int64_t index) const override;  // empty: also of a text that cannot be read
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;

 private:
  struct Outcome;
  struct Problem {
    std::string what, where;
  };

  void read_labels(const std::vector<Record>& records, std::vector<Outcome>& outcomes, const std::string& column,
                   const LabelledTexts* train);
  void store(const std::vector<Record>& records, std::vector<Outcome>& outcomes, const data::DatasetRequest& request,
             const LabelledTexts* train);
  void set_layout(const LabelledTexts* train, int64_t longest, bool has_pairs);

  TextUse use_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  TextStore texts_;
  std::vector<std::string> classes_;
  std::vector<float> targets_;  // a class number or a number for each sample, or a row of classes
  int64_t columns_ = 1;         // of targets_
  std::map<int64_t, Problem> problems_;
  std::string files_;
  uint64_t content_hash_ = 0;
  data::SampleLayout layout_;
};

}  // namespace gputrain::records
