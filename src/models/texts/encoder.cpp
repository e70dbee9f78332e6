#include "encoder.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "encoder_names.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::models {
namespace {

// Multiple of tokens, so that batches have few shapes: oneDNN prepares each shape anew.
constexpr int64_t kTokensOfShapes = 64;

/// Returns the indices of the texts' tokens in a padded batch, row after row. A text without tokens keeps one.
at::Tensor places_of_tokens(const at::Tensor& lengths, int64_t time) {
  const at::Tensor present = at::arange(time, lengths.options()).lt(lengths.clamp_min(1).unsqueeze(1));
  return present.flatten().nonzero().squeeze(1);
}

}  // namespace

Encoder::Encoder(const EncoderSpec& spec, const nn::Context& context, const DataFacts& facts)
    : Model(context), sizes_(encoder_sizes_of(spec, facts)), sample_tokens_(facts.input_shape[0]) {
  const EncoderVariant& names = *sizes_.variant;
  const auto add_embedding = [&](const char* name, int64_t rows) {
    return add_child<nn::Embedding>(
        name, context, nn::Embedding::Options{.rows = rows, .channels = sizes_.channels, .init_std = kEncoderInitStd});
  };
  const auto add_norm = [&](const char* name) {
    return add_child<nn::Norm>(
        name, context,
        nn::Norm::Options{.channels = sizes_.channels, .bias = !sizes_.has_norms_before, .eps = sizes_.norm_eps});
  };
  tokens_ = add_embedding(names.tokens, sizes_.vocabulary);
  if (names.positions != nullptr) {
    positions_ = add_embedding(names.positions, sizes_.position_offset + sizes_.positions);
  } else {
    const auto type = context.policy.master == at::kDouble ? at::kDouble : at::kFloat;
    const auto options = at::TensorOptions().dtype(type).device(context.device);
    const int64_t head_channels = sizes_.channels / sizes_.heads;
    rotary_.emplace_back(sizes_.positions, head_channels, sizes_.rope_theta, options);
    if (std::ranges::max(sizes_.windows) > 0)
      rotary_.emplace_back(sizes_.positions, head_channels, sizes_.rope_local_theta, options);
  }
  if (sizes_.token_types > 0) types_ = add_embedding(names.types, sizes_.token_types);
  embedding_norm_ = add_norm(names.embedding_norm);
  dropout_ = add_child<nn::Dropout>("dropout", context, sizes_.dropout);
  for (size_t i = 0; i < sizes_.windows.size(); ++i) {
    blocks_.push_back(add_child<EncoderBlock>(names.blocks + std::to_string(i), context, sizes_, i));
  }
  if (names.final_norm != nullptr) final_norm_ = add_norm(names.final_norm);
  head_ = add_child<EncoderHead>("", context, sizes_);
}

at::Tensor Encoder::embedded(const Texts& texts) const {
  const nn::UnitRange range(*tokens_);
  at::Tensor x = tokens_->forward(texts.tokens);
  if (types_ != nullptr) x = at::add(x, texts.types.defined() ? types_->forward(texts.types) : types_->first_rows(1));
  if (positions_ != nullptr) {
    const int64_t first = sizes_.position_offset, time = texts.tokens.size(1);
    x = at::add(x, texts.positions.defined() ? positions_->forward(at::add(texts.positions, first))
                                             : positions_->first_rows(first + time).narrow(0, first, time));
  }
  return dropout_->forward(ops::cast(embedding_norm_->forward(x), context().policy.compute));
}

at::Tensor Encoder::hidden(const Texts& texts) const {
  std::vector<ops::RotaryTable> tables = rotary_;
  for (ops::RotaryTable& table : tables) {
    if (texts.positions.defined()) table = table.at(texts.positions);
  }
  nn::ResidualStream stream{embedded(texts)};
  for (const EncoderBlock* block : blocks_) {
    nn::Sequence sequence{.positions = texts.positions, .lengths = texts.lengths, .texts = texts.apart};
    if (!tables.empty()) sequence.rotary = tables[block->rotary_index()];
    stream = run_block(stream, *block, sequence);
  }
  const nn::UnitRange range(*head_unit().front());
  return final_norm_ != nullptr ? final_norm_->forward_sum(stream.added, stream.x).normed : stream.x;
}

at::Tensor Encoder::features(const Texts& texts) const {
  const int64_t rows = texts.tokens.size(0), time = texts.tokens.size(1);
  // Texts that share a row are shorter than the row.
  if (!texts.positions.defined() && time > sizes_.positions) {
    throw Error(ExitCode::usage, {.what = "samples of " + std::to_string(time) + " tokens, but the model has " +
                                          std::to_string(sizes_.positions) + " positions",
                                  .where = "model.config.block_size",
                                  .hint = "block_size: " + std::to_string(time)});
  }
  if (!has_padding_on_cpu(texts) || ops::is_recorded()) {
    const at::Tensor x = hidden(texts);
    const nn::UnitRange range(*head_unit().front());
    return head_->features(x, texts.lengths);
  }
  const at::Tensor places = places_of_tokens(texts.lengths, time);
  const int64_t tokens = places.size(0), whole = ceil_divide(tokens, kTokensOfShapes) * kTokensOfShapes;
  const at::Tensor padded = at::constant_pad_nd(places, {0, whole - tokens});
  const auto in_one_row = [&](const at::Tensor& one) {
    return one.defined() ? one.reshape({-1}).index_select(0, padded).unsqueeze(0) : one;
  };
  const auto in_rows = [&](const at::Tensor& one) {
    const at::Tensor rows_of_all = at::zeros({rows * time, one.size(-1)}, one.options());
    return rows_of_all.index_copy(0, places, one[0].narrow(0, 0, tokens)).view({rows, time, -1});
  };
  const at::Tensor x = hidden({.tokens = in_one_row(texts.tokens),
                               .types = in_one_row(texts.types),
                               .positions = padded.remainder(time).unsqueeze(0),
                               .lengths = at::full({1}, tokens, padded.options())});
  const nn::UnitRange range(*head_unit().front());
  return head_->is_pooled() ? head_->features(in_rows(x), texts.lengths) : in_rows(head_->features(x, {}));
}

Encoder::Texts Encoder::texts_of(const Batch& batch) {
  const auto values_of = [&](const char* name) {
    const BatchField* field = batch.find(name);
    return field != nullptr ? field->values : at::Tensor();
  };
  Texts texts{.tokens = batch.tensor(kTokens),
              .types = values_of(kTokenTypes),
              .positions = values_of(kPositions),
              .lengths = batch.find(kTokens)->counts};
  // The lengths are not read from a GPU, because the host would wait for it.
  const bool is_found_full = texts.lengths.defined() && texts.lengths.is_cpu() && !ops::is_recorded() &&
                             texts.lengths.eq(texts.tokens.size(1)).all().item<bool>();
  if (is_found_full || batch.find(kTokens)->is_full) texts.lengths = at::Tensor();
  if (texts.tokens.is_cuda() && texts.positions.defined() && batch.texts_in_row > 0) {
    texts.apart = ops::texts_of_positions(texts.positions, batch.texts_in_row, batch.longest_text);
  } else if (texts.tokens.is_cuda() && !texts.positions.defined() && texts.lengths.defined()) {
    texts.apart = ops::texts_of_lengths(texts.lengths, texts.tokens.size(1));
  }
  return texts;
}

Model::LastLayer Encoder::last_layer(const Batch& batch) {
  const Texts texts = texts_of(batch);
  if (texts.positions.defined() && head_->is_pooled()) {
    throw Error(ExitCode::usage, {.what = "several texts share a row, but the model's head reads a row as one text",
                                  .where = "model.config.head",
                                  .hint = "turn packing off, or use head: mlm or tagger"});
  }
  return {.features = features(texts), .head = head(), .classes = sizes_.classes};
}

ops::Head Encoder::head() const {
  ops::Head head = head_->last_layer(tokens_->weight());
  if (!head_->reads_embedding()) return head;
  head.logits = [this, logits = std::move(head.logits)](const at::Tensor& x) {
    const nn::UnitRange range(*head_unit().front());
    nn::borrow_weights(*tokens_);
    return logits(x);
  };
  return head;
}

at::Tensor Encoder::forward(const at::Tensor& inputs) {
  const at::Tensor x = features({.tokens = inputs});
  const ops::Head last = head();
  return last.logits ? last.logits(x).narrow(-1, 0, sizes_.classes) : x;
}

std::vector<Unit> Encoder::units() {
  std::vector<Unit> units;
  Unit stem{"stem", {tokens_}};
  for (nn::Embedding* one : {positions_, types_}) {
    if (one != nullptr) stem.modules.push_back(one);
  }
  stem.modules.push_back(embedding_norm_);
  units.push_back(std::move(stem));
  for (size_t i = 0; i < blocks_.size(); ++i) units.push_back({"layer." + std::to_string(i), {blocks_[i]}});
  units.push_back({"head", head_unit()});
  return units;
}

std::vector<nn::Module*> Encoder::head_unit() const {
  std::vector<nn::Module*> modules;
  if (final_norm_ != nullptr) modules.push_back(final_norm_);
  for (nn::Module* part : head_->parts()) modules.push_back(part);
  if (head_->parts().empty()) modules.push_back(head_);
  return modules;
}

double Encoder::flops_per_sample() const {
  // Counted as in Gpt: 2 operations per weight and token forward, 4 backward, and 2 products of [time, keys, channels].
  const auto tokens = static_cast<double>(sample_tokens_), channels = static_cast<double>(sizes_.channels);
  const double block =
      4 * channels * channels + (sizes_.has_norms_before ? 3 : 2) * channels * static_cast<double>(sizes_.inner);
  double keys = 0;  // sum over all layers, for one token
  for (const int64_t window : sizes_.windows)
    keys += window > 0 ? std::min(static_cast<double>(2 * window - 1), tokens) : tokens;
  double head = 0;
  for (nn::Module* part : head_->parts()) {
    part->each_parameter([&](const std::string&, nn::Parameter& one) {
      if (one.value.dim() == 2) head += static_cast<double>(one.value.numel());
    });
  }
  if (sizes_.head == HeadKind::mlm) head += channels * static_cast<double>(sizes_.vocabulary);
  const double head_rows = head_->is_pooled() ? 1 : tokens;
  return 6 * (tokens * static_cast<double>(sizes_.layers) * block + head_rows * head) + 12 * channels * tokens * keys;
}

namespace {
const config::Registered<Encoder, EncoderSpec> registered_encoder{
    catalog(), "bert", "encoder of texts: BERT, RoBERTa, DistilBERT, ModernBERT"};
}  // namespace

}  // namespace gputrain::models
