// Samples of answers to prompts: pairs of which one is better, or answers that are good or bad.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answers.hpp"
#include "examples.hpp"
#include "gputrain/data/dataset.hpp"
#include "packing.hpp"
#include "record_file.hpp"

namespace gputrain::records {

/// For TextUse::preference: fields tokens, target, rejected_tokens and rejected_target. For TextUse::rating: tokens,
/// target, unrelated_tokens and unrelated_target (the prompt with the answer of the sample before it), and is_good. All
/// but is_good are ragged. Targets are the next token within the answer, else kIgnoreIndex.
/// Packed, several such samples share a row, both texts of each, in the fields tokens, target, positions,
/// text_of_token, is_sample and is_good.
class AnswerTexts final : public data::Dataset {
 public:
  /// Throws Error(data) if more records are bad than data.max_bad_fraction allows.
  AnswerTexts(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension);

  int64_t size() const override { return packs_ ? rows_.size() : first_.size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;  // of the longer one; packed: 0
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;

 private:
  struct Sample;
  std::vector<Sample> samples_in(std::vector<Record>& records, const data::DatasetRequest& request) const;
  static void add_unrelated(std::vector<Sample>& samples);
  void render(std::vector<Sample>& samples, const data::DatasetRequest& request);
  void store(const std::vector<Sample>& samples, const data::DatasetRequest& request, int64_t most);
  void set_layout(int64_t longest);
  void pack_rows(int64_t capacity, bool is_set, const AnswerTexts* train);
  uint64_t hash_of_all() const;
  void read_packed(int64_t index, const data::SampleRow& row) const;

  bool is_rated_, packs_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  Examples first_, second_;
  std::vector<float> is_good_;  // if rated
  PackedRows rows_;             // if packed: samples, by their number
  std::string files_;
  uint64_t content_hash_ = 0;
  data::SampleLayout layout_;
};

}  // namespace gputrain::records
