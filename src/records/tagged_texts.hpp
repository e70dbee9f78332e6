// Texts as words, each with a tag: names of people and places, parts of speech.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "encoded_texts.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Fields tokens and target, ragged. The first token of a word has the class of its tag; the others are not learned, as
/// in transformers' examples.
class TaggedTexts final : public data::Dataset {
 public:
  struct Text {
    std::vector<std::string> words, tags;
    std::string place;
    std::string problem = {};  // empty: it can be used
  };
  /// Throws Error(data) if more texts are bad than data.max_bad_fraction allows.
  TaggedTexts(const data::DatasetRequest& request, std::vector<Text> texts, std::string files,
              const TaggedTexts* train);

  int64_t size() const override { return texts_.size(); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;
  bool is_cheap_to_read() const override { return true; }
  std::vector<std::string> class_names() const override { return classes_; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;

 private:
  struct Outcome {
    std::vector<int64_t> tokens, targets;
    std::string problem;
  };
  Outcome encoded(const Text& text, const class ClassNames& classes) const;
  void store(std::vector<Outcome>& outcomes, const std::vector<Text>& texts, const data::DatasetRequest& request,
             int64_t most);

  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  TextStore texts_;
  std::vector<int32_t> targets_;  // of all tokens
  std::vector<int64_t> begins_;   // of each text in targets_
  std::vector<std::string> classes_;
  std::map<int64_t, std::pair<std::string, std::string>> problems_;  // what and where
  std::string files_;
  uint64_t content_hash_ = 0;
  data::SampleLayout layout_;
};

}  // namespace gputrain::records
