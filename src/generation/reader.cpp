#include "reader.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace gputrain::generation {
namespace {

using Texts = std::vector<std::vector<int64_t>>;

int64_t longest_of(const Texts& texts) {
  int64_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  return longest;
}

}  // namespace

at::Tensor Reader::logits_after(const Texts& texts) {
  reads_anew_ = reads_anew_ || !model_.text_limits() || longest_of(texts) > context_.length;
  return reads_anew_ ? read_anew(texts) : read_new(texts);
}

/// Texts end together, so that their next tokens stand side by side: the shorter ones begin with padding. It stays when
/// the longest text is complete and gone.
at::Tensor Reader::read_new(const Texts& texts) {
  const int64_t rows = std::ssize(texts), length = read_ > 0 ? read_ + 1 : longest_of(texts), time = length - read_;
  const at::Tensor tokens = at::zeros({rows, time}, at::kLong), positions = at::zeros({rows, time}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<size_t>(row)];
    const int64_t count = std::ssize(text), shown = std::min(count, time);
    is_padded_ = is_padded_ || count < length;
    int64_t* const token = tokens.mutable_data_ptr<int64_t>() + row * time + time - shown;
    int64_t* const position = positions.mutable_data_ptr<int64_t>() + row * time + time - shown;
    std::copy(text.end() - shown, text.end(), token);
    for (int64_t i = 0; i < shown; ++i) position[i] = count - shown + i;
  }
  read_ = length;
  const at::Device device = model_.context().device;
  return model_.next_logits({.tokens = tokens.to(device), .positions = positions.to(device), .is_padded = is_padded_},
                            memory_);
}

at::Tensor Reader::read_anew(const Texts& texts) {
  memory_.clear();
  const int64_t rows = std::ssize(texts), most = std::min(longest_of(texts), context_.length);
  const at::Tensor tokens = at::zeros({rows, context_.has_one_length ? context_.length : most}, at::kLong);
  std::vector<int64_t> last;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<size_t>(row)];
    const int64_t count = std::min(std::ssize(text), context_.length);
    std::copy(text.end() - count, text.end(), tokens.mutable_data_ptr<int64_t>() + row * tokens.size(1));
    last.push_back(count - 1);
  }
  const at::Tensor logits = model_.forward(tokens.to(model_.context().device));
  std::vector<at::Tensor> after;
  for (int64_t row = 0; row < rows; ++row)
    after.push_back(logits.select(0, row).select(0, last[static_cast<size_t>(row)]));
  return at::stack(after);
}

void Reader::keep(const std::vector<int64_t>& rows) {
  const at::Tensor index = at::empty({std::ssize(rows)}, at::kLong);
  std::ranges::copy(rows, index.mutable_data_ptr<int64_t>());
  for (nn::KeyValues& layer : memory_) layer.keep_rows(index.to(model_.context().device));
}

}  // namespace gputrain::generation
