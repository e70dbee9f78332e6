// Language-model samples from one sequence of tokens: windows of `sequence_length`, with targets shifted by one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::datasets {

/// A sequence of tokens; any thread may read any part of it.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;
  virtual int64_t vocabulary_size() const = 0;
  virtual void read(int64_t first, std::span<int64_t> tokens) const = 0;  // must lie within size()
  virtual std::string name() const = 0;                                   // returns a path, for messages
  virtual std::string describe(int64_t begin, int64_t end) const = 0;     // describes tokens [begin, end): "3 files"
  virtual uint64_t content_hash() const = 0;                              // returns a hash like Dataset's
  virtual std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const { return nullptr; }
};

/// Counts the files with a token in [begin, end): "3 files". `ends` holds the end of each file, in tokens.
std::string files_between(const std::vector<int64_t>& ends, int64_t begin, int64_t end);

/// Returns the tokens per window, from the model or the job. Throws Error(usage) if neither sets it, or if the model
/// reads no tokens.
int64_t window_length(const data::DatasetRequest& request);

/// Samples in which every token but the first is a target exactly once per epoch. With augmentation, windows start at a
/// different offset in each epoch, so that their borders move; the window at the end continues at the start.
class TokenWindows : public data::Dataset {
 public:
  /// Makes windows over tokens [begin, end) of the source. Throws Error(data) if there are fewer than two tokens.
  TokenWindows(std::shared_ptr<const TokenSource> source, int64_t begin, int64_t end, int64_t sequence_length);
  /// Makes windows of window_length() over all tokens. Warns of training data that is much shorter than one.
  TokenWindows(std::shared_ptr<const TokenSource> source, const data::DatasetRequest& request);

  int64_t size() const override { return windows_; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return source_->tokenizer(); }
  uint64_t content_hash() const override { return source_->content_hash(); }
  std::string describe() const override;

 private:
  void read_run(int64_t first, int64_t count, int64_t* input, int64_t* target) const;

  std::shared_ptr<const TokenSource> source_;
  int64_t begin_, end_, length_;
  int64_t targets_, windows_;
  data::SampleLayout layout_;
};

}  // namespace gputrain::datasets
