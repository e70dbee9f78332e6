#include "reader.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>


namespace gputrain::generation {
namespace {

using Texts = std::vector<std::vector<int64_t>>;

int64_t longest_of(const Texts& texts) {
  int64_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  return longest;
}

/// Returns a length for prompts on a GPU, where each one costs time to choose kernels: 16, 24, 32, 48, 64 and so on.
int64_t rounded_up(int64_t length) {
  int64_t power = 16;
  while (power < length) power *= 2;
  return power > 16 && length <= power / 4 * 3 ? power / 4 * 3 : power;
}

/// Makes graphs; null if a pass cannot be recorded: if ranks share the model, it has collectives and gives memory back.
std::unique_ptr<device::CapturedGraphs> graphs_for(const models::Model& model, const MakeCapturedGraphs& make_graphs) {
  const nn::Context& context = model.context();
  const bool is_shared =
      context.tensor_group != nullptr || context.context_group != nullptr || model.unit_memory() != nullptr;
  return make_graphs && !is_shared ? make_graphs(context.device) : nullptr;
}

}  // namespace

Reader::Reader(models::Model& model, const ContextWindow& context, const MakeCapturedGraphs& make_graphs)
    : model_(model), context_(context) {
  auto graphs = graphs_for(model, make_graphs);
  if (graphs != nullptr || !model.context().device.is_cpu()) token_pass_.emplace(model, std::move(graphs));
}

at::Tensor Reader::logits_after(const Texts& texts) {
  reads_anew_ = reads_anew_ || !model_.text_limits() || longest_of(texts) > context_.length;
  return reads_anew_ ? read_anew(texts) : read_new(texts);
}

/// Reads the new tokens. Texts end together, so that their next tokens stand side by side: the shorter ones begin with
/// padding. It stays when the longest text is complete and gone.
at::Tensor Reader::read_new(const Texts& texts) {
  if (read_ > 0 && token_pass_) return read_one_token(texts);
  const int64_t rows = std::ssize(texts), longest = read_ > 0 ? read_ + 1 : longest_of(texts),
                length = token_pass_ ? std::min(rounded_up(longest), context_.length) : longest, time = length - read_;
  begins_.clear();
  const at::Tensor tokens = at::zeros({rows, time}, at::kLong), positions = at::zeros({rows, time}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<size_t>(row)];
    const int64_t count = std::ssize(text), shown = std::min(count, time);
    is_padded_ = is_padded_ || count < length;
    begins_.push_back(length - count);
    int64_t* const token = tokens.mutable_data_ptr<int64_t>() + row * time + time - shown;
    int64_t* const position = positions.mutable_data_ptr<int64_t>() + row * time + time - shown;
    std::copy(text.end() - shown, text.end(), token);
    for (int64_t i = 0; i < shown; ++i) position[i] = count - shown + i;
  }
  read_ = length;
  const at::Device device = model_.context().device;
  models::Model::NextTokens next{
      .tokens = tokens.to(device), .positions = positions.to(device), .is_padded = is_padded_};
  if (token_pass_) next.begins = at::tensor(begins_, at::kLong).to(device);
  return model_.next_logits(next, memory_);
}

at::Tensor Reader::read_one_token(const Texts& texts) {
  std::vector<NextToken> tokens;
  for (size_t row = 0; row < texts.size(); ++row)
    tokens.push_back({.token = texts[row].back(), .position = std::ssize(texts[row]) - 1, .begin = begins_[row]});
  return token_pass_->logits_after(tokens, read_++, memory_);
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
  if (reads_anew_) return;
  const at::Tensor index = at::empty({std::ssize(rows)}, at::kLong);
  std::ranges::copy(rows, index.mutable_data_ptr<int64_t>());
  for (nn::KeyValues& layer : memory_) layer.keep_rows(index.to(model_.context().device));
  if (!token_pass_) return;
  std::vector<int64_t> begins;
  for (const int64_t row : rows) begins.push_back(begins_[static_cast<size_t>(row)]);
  begins_ = std::move(begins);
  token_pass_->forget();
}

}  // namespace gputrain::generation
