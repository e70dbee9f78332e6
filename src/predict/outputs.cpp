#include "outputs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::app {
namespace {

using records::EncoderInput;

/// Returns the indices of the texts, the longest first: texts of similar length need little padding.
std::vector<size_t> longest_first(const std::vector<EncoderInput>& inputs) {
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return inputs[i].tokens.size(); });
  return order;
}

Batch batch_of(const std::vector<EncoderInput>& inputs, std::span<const size_t> chosen, at::Device device) {
  const auto rows = std::ssize(chosen), length = std::ssize(inputs[chosen[0]].tokens);
  const at::Tensor tokens = at::zeros({rows, length}, at::kLong), types = at::zeros({rows, length}, at::kLong);
  const at::Tensor counts = at::empty({rows}, at::kLong);
  bool has_types = false;
  for (int64_t row = 0; row < rows; ++row) {
    const EncoderInput& input = inputs[chosen[static_cast<size_t>(row)]];
    const auto count = std::ssize(input.tokens);
    std::ranges::copy(input.tokens, tokens.data_ptr<int64_t>() + row * length);
    counts.data_ptr<int64_t>()[row] = count;
    int64_t* const type = types.data_ptr<int64_t>() + row * length;
    std::fill(type + input.second_type, type + count, 1);
    has_types = has_types || input.second_type < count;
  }
  Batch batch;
  batch.fields.push_back({kTokens, tokens.to(device), counts.to(device)});
  if (has_types) batch.fields.push_back({kTokenTypes, types.to(device), counts.to(device)});
  batch.samples = batch.samples_on_all_ranks = rows;
  return batch;
}

void check_tokens(const std::vector<records::GivenText>& texts, const std::vector<EncoderInput>& inputs,
                  int64_t vocabulary) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t highest = *std::ranges::max_element(inputs[i].tokens);
    if (highest < vocabulary) continue;
    throw Error(ExitCode::data, {.what = "the text has token " + grouped(highest) + ", but the model knows " +
                                         counted(vocabulary, "token") + ": the tokenizer belongs to another model",
                                 .where = texts[i].place});
  }
}

void warn_of_cut(const std::vector<EncoderInput>& inputs, const TextsToRead& texts, int64_t most) {
  int64_t cut = 0, longest = 0;
  for (const EncoderInput& input : inputs) {
    cut += input.full_size > std::ssize(input.tokens) ? 1 : 0;
    longest = std::max(longest, input.full_size);
  }
  if (cut > 0)
    log::warning(texts.file + ": cut " + grouped(cut) + " of " + counted(std::ssize(inputs), "text") + " after " +
                 counted(most, "token") + "; the longest has " + grouped(longest));
}

/// Selects the output of one text of a batch. A word without a token has NaN.
at::Tensor output_of(const at::Tensor& output, const EncoderInput& input) {
  if (output.dim() == 1) return output;
  const at::Tensor places = at::tensor(input.word_places, at::kLong);
  return output.index_select(0, places.clamp_min(0)).masked_fill(places.lt(0).unsqueeze(1), std::nan(""));
}

}  // namespace

TextOutputs outputs_of(trained::Model& model, const TextsToRead& wanted, Target target) {
  TextOutputs all;
  all.texts = records::read_given_texts(
      {.path = wanted.file, .target = target, .columns = model.columns, .class_names = model.class_names});
  const std::vector<EncoderInput> inputs = records::encoder_inputs(all.texts, *model.tokenizer, model.longest_text);
  check_tokens(all.texts, inputs, model.vocabulary);
  warn_of_cut(inputs, wanted, model.longest_text);
  trained::Forward forward(model);
  const std::vector<size_t> order = longest_first(inputs);
  all.outputs.resize(inputs.size());
  for (size_t begin = 0; begin < order.size();) {
    const size_t size = std::min(static_cast<size_t>(wanted.batch_size), order.size() - begin);
    const auto chosen = std::span(order).subspan(begin, size);
    const at::Tensor outputs = forward(batch_of(inputs, chosen, model.context.device)).to(at::kCPU, at::kFloat);
    for (size_t row = 0; row < size; ++row)
      all.outputs[chosen[row]] = output_of(outputs[static_cast<int64_t>(row)], inputs[chosen[row]]);
    begin += size;
  }
  return all;
}

}  // namespace gputrain::app
