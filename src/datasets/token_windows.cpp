#include "gputrain/datasets/token_windows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/batch.hpp"

namespace gputrain::datasets {
std::string files_between(const std::vector<int64_t>& ends, int64_t begin, int64_t end) {
  int64_t files = 0, first = 0;
  for (const int64_t last : ends) {
    if (std::max(first, begin) < std::min(last, end)) ++files;
    first = last;
  }
  return counted(files, "file");
}

int64_t window_length(const data::DatasetRequest& request) {
  if (!request.model.reads_tokens()) {
    throw Error(ExitCode::usage, {.what = "this data is text, but the model does not read text",
                                  .where = request.path,
                                  .hint = "use a language model, or image data"});
  }
  if (request.sequence_length < 1) {
    throw Error(ExitCode::usage,
                {.what = "the length of a sample is unknown: neither this key nor data.text.max_length is set",
                 .where = "model.config.block_size",
                 .hint = "block_size: 256"});
  }
  return request.sequence_length;
}

TokenWindows::TokenWindows(std::shared_ptr<const TokenSource> source, int64_t begin, int64_t end,
                           int64_t sequence_length)
    : source_(std::move(source)), begin_(begin), end_(end), length_(sequence_length), targets_(end - begin - 1) {
  GPUTRAIN_ASSERT(length_ >= 1 && begin >= 0 && end <= source_->size(), "windows outside the tokens");
  if (targets_ < 1)
    throw Error(ExitCode::data, {.what = "too few tokens: " + std::to_string(end - begin) +
                                         "; predicting the next token needs at least two",
                                 .where = source_->name()});
  windows_ = ceil_divide(targets_, length_);
  layout_ = data::SampleLayout::tokens(length_, source_->vocabulary_size());
}

TokenWindows::TokenWindows(std::shared_ptr<const TokenSource> source, const data::DatasetRequest& request)
    : TokenWindows(source, 0, source->size(), window_length(request)) {
  if (request.role != data::Split::train || length_ / 2 < targets_) return;
  log::warning("a sample has " + grouped(length_) + " tokens, but the training data only " + grouped(targets_ + 1) +
               ": the rest is padding, which takes memory and time. Set data.text.max_length: " +
               std::to_string(targets_) + ", or less");
}

/// Writes inputs and targets number [first, first + count); positions after the last target are padding and ignored.
void TokenWindows::read_run(int64_t first, int64_t count, int64_t* input, int64_t* target) const {
  const int64_t real = std::clamp<int64_t>(targets_ - first, 0, count);
  if (real > 0) {
    thread_local std::vector<int64_t> tokens;
    tokens.resize(static_cast<size_t>(real) + 1);
    source_->read(begin_ + first, tokens);
    std::copy(tokens.begin(), tokens.end() - 1, input);
    std::copy(tokens.begin() + 1, tokens.end(), target);
  }
  std::fill(input + real, input + count, 0);
  std::fill(target + real, target + count, kIgnoreIndex);
}

void TokenWindows::read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const {
  int64_t offset = 0;
  if (context.augment) offset = RandomStream(context.seed, static_cast<uint64_t>(context.epoch)).below(length_);
  const int64_t around = windows_ * length_;
  const int64_t first = (offset + index * length_) % around;
  const int64_t before_end = std::min(length_, around - first);
  auto* const tokens = row.values<int64_t>(0);
  auto* const target = row.values<int64_t>(1);
  read_run(first, before_end, tokens, target);
  if (before_end < length_) read_run(0, length_ - before_end, tokens + before_end, target + before_end);
}

std::shared_ptr<const data::Dataset> TokenWindows::part(double begin, double end, data::Split) const {
  const auto place = [this](double fraction) {
    return begin_ + static_cast<int64_t>(std::floor(fraction * static_cast<double>(end_ - begin_)));
  };
  return std::make_shared<TokenWindows>(source_, place(begin), place(end), length_);
}

std::string TokenWindows::describe() const {
  return counted(end_ - begin_, "token") + " of " + grouped(layout_.outputs) + ", " + source_->describe(begin_, end_) +
         ", " + counted(windows_, "window") + " of " + grouped(length_);
}

}  // namespace gputrain::datasets
