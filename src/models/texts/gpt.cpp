#include "gpt.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "gpt_names.hpp"
#include "gputrain/comm/group.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/nn/split.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/linear.hpp"
#include "gputrain/ops/split_layers.hpp"

namespace gputrain::models {
namespace {

/// Returns the factor of embeddings, rounded as transformers does: to fp32, then to the type that computes.
double embedding_scale_of(const GptSpec& spec, at::ScalarType compute) {
  if (!spec.scale_embeddings) return 1;
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(spec.n_embd)));
  return at::scalar_tensor(root, at::TensorOptions().dtype(compute)).item<double>();
}

/// Explains why so many ranks cannot share the layers; empty: they can.
std::string obstacle_to_split(const GptSizes& sizes, int64_t ranks) {
  if (sizes.heads % ranks != 0) return "its " + std::to_string(sizes.heads) + " heads cannot be shared equally";
  const bool has_one_layer = sizes.naming == nn::Naming::gpt2 || sizes.naming == nn::Naming::phi3;
  if (has_one_layer && sizes.key_heads % ranks != 0)
    return "its " + std::to_string(sizes.key_heads) +
           " key heads cannot be shared equally, and are in a layer with the queries";
  return "";
}

void check_split(const GptSizes& sizes, const comm::Group* group) {
  if (group == nullptr) return;
  const std::string obstacle = obstacle_to_split(sizes, group->size());
  if (obstacle.empty()) return;
  throw Error(ExitCode::usage,
              {.what = counted(group->size(), "rank") + " cannot share the layers of this model: " + obstacle,
               .where = "parallel.tensor",
               .hint = "another number of ranks, or parallel.shard: parameters, which any number shares"});
}

}  // namespace

Gpt::Gpt(const GptSpec& spec, const nn::Context& context, const DataFacts& facts)
    : Model(context),
      spec_(spec),
      sizes_(sizes_of(spec, facts)),
      embedding_scale_(embedding_scale_of(spec, context.policy.compute)) {
  check_split(sizes_, context.tensor_group);
  const GptNames& names = names_of(sizes_.naming);
  sample_tokens_ = facts.input_shape.size() == 1 ? facts.input_shape[0] : sizes_.positions;
  const auto embedding = [&](int64_t rows) {
    return nn::Embedding::Options{.rows = rows, .channels = sizes_.channels, .init_std = kGptInitStd};
  };
  auto of_tokens = embedding(sizes_.vocabulary);
  of_tokens.shares_rows = true;
  tokens_ = add_child<nn::Embedding>(names.tokens, context, of_tokens);
  if (sizes_.rotary) {
    const auto type = context.policy.master == at::kDouble ? at::kDouble : at::kFloat;
    const auto options = at::TensorOptions().dtype(type).device(context.device);
    rotary_.emplace_back(sizes_.positions, sizes_.rotary_channels, spec.rope_theta, options, sizes_.rotary_scaling);
    if (spec.rope_local_theta) {
      rotary_.emplace_back(sizes_.positions, sizes_.rotary_channels, *spec.rope_local_theta, options);
    }
  } else {
    positions_ = add_child<nn::Embedding>(names.positions, context, embedding(sizes_.positions));
  }
  dropout_ = add_child<nn::Dropout>("dropout", context, spec.dropout);
  for (int64_t i = 0; i < sizes_.layers; ++i) {
    blocks_.push_back(add_child<GptBlock>(names.blocks + std::to_string(i), context, spec, sizes_, i));
  }
  if (const auto layers = std::ranges::count(sizes_.sparse, true); spec.n_expert > 0 && layers > 0) {
    const auto wide = at::TensorOptions().dtype(at::kDouble).device(context.device);
    expert_counts_ = at::zeros({layers, spec.n_expert}, wide);
  }
  norm_ = add_child<nn::Norm>(names.norm, context, norm_options(spec, sizes_));
  if (sizes_.classes > 0) {
    score_ = add_child<nn::Linear>(
        kScore, context,
        nn::Linear::Options{
            .in = sizes_.channels, .out = sizes_.classes, .bias = false, .weight_init = nn::Init::normal(kGptInitStd)});
    return;
  }
  if (spec.tie_embeddings) return;
  head_ = add_child<nn::Linear>(names.head, context,
                                nn::Linear::Options{.in = sizes_.channels,
                                                    .out = sizes_.vocabulary,
                                                    .bias = false,
                                                    .weight_init = nn::Init::normal(kGptInitStd),
                                                    .shared = nn::Linear::Shared::outputs});
}

/// Adds the noise of NEFTune (Jain et al., arXiv:2310.05914) to embeddings [batch, time, channels], in training.
at::Tensor Gpt::with_noise(const at::Tensor& x) const {
  if (spec_.neftune_alpha == 0 || !is_training()) return x;
  const int64_t ranks = context().context_group != nullptr ? context().context_group->size() : 1;  // of a row's parts
  const double bound = spec_.neftune_alpha / std::sqrt(static_cast<double>(x.size(1) * ranks * x.size(2)));
  return at::add(x, at::rand_like(x).sub_(0.5), /*alpha=*/2 * bound);
}

at::Tensor Gpt::embedded(const at::Tensor& tokens, const at::Tensor& positions) const {
  const nn::UnitRange range(*tokens_);
  at::Tensor x = with_noise(tokens_->forward(tokens));
  if (embedding_scale_ != 1) x = at::mul(x, embedding_scale_);
  if (positions_ != nullptr) {
    x = at::add(x, positions.defined() ? positions_->forward(positions) : positions_->first_rows(tokens.size(1)));
  }
  return dropout_->forward(ops::cast(x, context().policy.compute));
}

nn::ResidualStream Gpt::stream_after(int64_t first, int64_t end, const at::Tensor& hidden, const at::Tensor& tokens,
                                     const Places& places, std::span<nn::KeyValues> earlier,
                                     std::vector<at::Tensor>* routes) {
  const at::Tensor& positions = places.positions;
  const int64_t time = tokens.size(1);
  if (time > sizes_.positions) {
    throw Error(ExitCode::usage, {.what = "samples of " + std::to_string(time) + " tokens, but the model has " +
                                          std::to_string(sizes_.positions) + " positions",
                                  .where = "model.config.block_size",
                                  .hint = "block_size: " + std::to_string(time)});
  }
  std::vector<ops::RotaryTable> tables = rotary_;
  for (ops::RotaryTable& table : tables) {
    if (positions.defined()) table = table.at(positions);
  }
  const at::Tensor in_texts = places.is_one_text ? at::Tensor() : positions;  // attention then needs no mask
  nn::ResidualStream stream{first == 0 ? embedded(tokens, positions) : hidden};
  for (int64_t unit = std::max(first, kFirstBlock); unit < std::min(end, head_unit()); ++unit) {
    const auto i = static_cast<size_t>(unit - kFirstBlock);
    nn::Sequence sequence{.positions = in_texts,
                          .texts = places.texts,
                          .room = places.room,
                          .context = places.context,
                          .earlier = earlier.empty() ? nullptr : &earlier[i]};
    if (!tables.empty()) sequence.rotary = tables[blocks_[i]->rotary_index()];
    stream = run_block(stream, *blocks_[i], sequence, dropout_->active_probability());
    if (routes != nullptr && stream.routes.defined()) routes->push_back(stream.routes);
  }
  return stream;
}

at::Tensor Gpt::normed(const nn::ResidualStream& stream) const {
  const nn::UnitRange range(*norm_);
  return norm_->forward_sum(stream.added, stream.x, dropout_->active_probability()).normed;
}

at::Tensor Gpt::run_units(const Batch& batch, int64_t end) {
  const auto [x, added, routes] =
      stream_after(batch.first_unit, end, batch.hidden, batch.tensor(kTokens), places_of(batch));
  return added.defined() ? at::add(x, dropout_->forward(added)) : x;
}

at::Tensor Gpt::empty_hidden(const Batch& batch) const {
  std::vector<int64_t> sizes = batch.tensor(kTokens).sizes().vec();
  sizes.push_back(sizes_.channels);
  return at::empty(sizes, at::TensorOptions().dtype(context().policy.compute).device(context().device));
}

int64_t Gpt::columns() const {
  if (const comm::Group* group = context().tensor_group) return ceil_divide(sizes_.vocabulary, group->size());
  const bool is_padded = head_ == nullptr || !head_->has_branch();  // a branch has one column per token
  return is_padded ? std::max(sizes_.vocabulary, spec_.pad_vocab_to) : sizes_.vocabulary;
}

at::Tensor Gpt::logits(const at::Tensor& features) const {
  const nn::UnitRange range(*norm_);  // unit of the head
  if (head_ == nullptr) nn::borrow_weights(*tokens_);
  if (head_ != nullptr && head_->has_branch()) return head_->forward(features);
  const int64_t most = context().tensor_group == nullptr ? spec_.pad_vocab_to : 0;
  return ops::linear_padded(context().policy, features, head_weight(), at::Tensor(), most);
}

std::vector<at::Tensor> Gpt::head_parameters() {
  if (head_ == nullptr) return {head_weight()};
  std::vector<at::Tensor> parameters;
  head_->each_parameter([&](const std::string&, nn::Parameter& one) { parameters.push_back(one.value); });
  return parameters;
}

/// Computes the classes of each text from the features of its last token, as in transformers' sequence classifiers.
Model::LastLayer Gpt::classes_of_texts(const at::Tensor& features, const at::Tensor& counts) {
  at::Tensor last = features.select(1, -1);
  if (counts.defined()) {
    const at::Tensor places = at::clamp_min(counts - 1, 0).view({-1, 1, 1}).expand({-1, 1, features.size(2)});
    last = features.gather(1, places).squeeze(1);
  }
  ops::Head head{.logits = [this](const at::Tensor& rows) { return score_->forward(rows); },
                 .parameters = {},
                 .columns = sizes_.classes};
  score_->each_parameter([&](const std::string&, nn::Parameter& one) { head.parameters.push_back(one.value); });
  return {.features = last, .head = std::move(head), .classes = sizes_.classes};
}

std::vector<nn::Module*> Gpt::head_parts() {
  return score_ != nullptr ? std::vector<nn::Module*>{score_} : std::vector<nn::Module*>();
}

Gpt::Places Gpt::places_of(const Batch& batch) const {
  const BatchField* positions = batch.find(kPositions);
  Places places{.positions = positions != nullptr ? positions->values : at::Tensor()};
  if (batch.is_part_of_texts) {
    places.context = context().context_group;
    places.is_one_text = batch.has_one_text_a_row;
  } else if (positions != nullptr && positions->values.is_cuda() && batch.texts_in_row > 0) {
    places.texts = ops::texts_of_positions(positions->values, batch.texts_in_row, batch.longest_text);
  }
  return places;
}

namespace {

/// Returns bool [rows x time], false for padding; undefined: there is none. The empty end of a packed row looks like
/// one more text, the only one without a target.
at::Tensor counted_tokens(const Batch& batch) {
  const BatchField& tokens = *batch.find(kTokens);
  const auto places = [&] { return at::arange(tokens.values.size(1), tokens.values.options()); };
  if (tokens.counts.defined()) return tokens.is_full ? at::Tensor() : places().lt(tokens.counts.unsqueeze(1)).flatten();
  const BatchField *positions = batch.find(kPositions), *targets = batch.find(kTarget);
  if (positions == nullptr || targets == nullptr || batch.is_part_of_texts) return {};
  const at::Tensor last_begin = at::where(positions->values.eq(0), places(), 0).amax(1, /*keepdim=*/true);
  const at::Tensor is_before = places().lt(last_begin);
  const at::Tensor learns =
      targets->values.ne(kIgnoreIndex).logical_and(is_before.logical_not()).any(1, /*keepdim=*/true);
  return is_before.logical_or(learns).flatten();
}

}  // namespace

Model::LastLayer Gpt::last_layer(const Batch& batch) {
  if (score_ != nullptr) {
    const BatchField* tokens = batch.find(kTokens);
    return classes_of_texts(hidden_states(batch.tensor(kTokens), {}), tokens->counts);
  }
  ops::Head head{.logits = [this](const at::Tensor& features) { return logits(features); },
                 .parameters = head_parameters(),
                 .columns = columns()};
  if (comm::Group* group = context().tensor_group) {
    // A rank has the same rows of the embedding and of the head.
    head.loss = [group, first = tokens_->first_row()](const at::Tensor& columns, const at::Tensor& targets,
                                                      const ops::CrossEntropyOptions& options) {
      return ops::split_cross_entropy(columns, targets, options, first, *group);
    };
  }
  std::vector<at::Tensor> routes;
  const bool learns_routes =
      expert_counts_.defined() && is_training() && at::GradMode::is_enabled() && !batch.hidden.defined();
  const at::Tensor features = normed(stream_after(batch.first_unit, head_unit(), batch.hidden, batch.tensor(kTokens),
                                                  places_of(batch), {}, learns_routes ? &routes : nullptr));
  const at::Tensor counted = learns_routes ? counted_tokens(batch) : at::Tensor();
  if (learns_routes) nn::add_expert_counts(expert_counts_, routes, spec_.experts_per_token, counted);
  return {.features = ops::split_input(features, context().tensor_group),
          .head = std::move(head),
          .classes = sizes_.vocabulary,
          .extra_loss = learns_routes && has_router_losses(spec_) ? router_loss(routes, counted) : at::Tensor()};
}

at::Tensor Gpt::take_expert_counts() {
  if (!expert_counts_.defined()) return {};
  const at::Tensor counts = expert_counts_.clone();
  expert_counts_.zero_();
  return counts;
}

at::Tensor Gpt::router_loss(const std::vector<at::Tensor>& routes, const at::Tensor& counted) const {
  const at::Tensor balance = nn::RouterLosses::balance(routes, spec_.experts_per_token, counted);
  if (spec_.router_z_loss_coef == 0) return at::mul(balance, spec_.router_aux_loss_coef);
  const at::Tensor z = nn::RouterLosses::z(routes, counted);
  return at::add(at::mul(balance, spec_.router_aux_loss_coef), z, spec_.router_z_loss_coef);
}

at::Tensor Gpt::vocabulary_of(const at::Tensor& columns) const {
  if (comm::Group* group = context().tensor_group) {
    const device::Split split{
        .dim = columns.dim() - 1, .sections = {sizes_.vocabulary}, .rank = group->rank(), .ranks = group->size()};
    return nn::whole_of(split, columns.detach(), *group);
  }
  return columns.size(-1) == sizes_.vocabulary ? columns : columns.narrow(-1, 0, sizes_.vocabulary);
}

at::Tensor Gpt::forward(const at::Tensor& inputs) {
  const at::Tensor features = hidden_states(inputs, {});
  return score_ != nullptr ? score_->forward(features.select(1, -1)) : vocabulary_of(logits(features));
}

at::Tensor Gpt::next_logits(const NextTokens& next, Memory& earlier) {
  if (earlier.empty()) earlier.resize(blocks_.size());
  Places places{.positions = next.positions, .is_one_text = !next.is_padded || next.place.defined()};
  if (next.place.defined()) {
    places.room = ops::key_room(next.place, next.begins, earlier.front().length());
  } else if (next.is_padded && next.begins.defined()) {
    places.texts = ops::texts_of_lengths(next.begins, next.tokens.size(1));  // the padding, and the text behind it
  }
  const at::Tensor features = hidden_states(next.tokens, places, earlier);
  return vocabulary_of(logits(features.select(1, -1)));
}

std::vector<Unit> Gpt::units() {
  std::vector<Unit> units;
  Unit stem{"stem", {tokens_}};
  if (positions_ != nullptr) stem.modules.push_back(positions_);
  units.push_back(std::move(stem));
  for (size_t i = 0; i < blocks_.size(); ++i) units.push_back({"h." + std::to_string(i), {blocks_[i]}});
  Unit head{"head", {norm_}};
  if (head_ != nullptr) head.modules.push_back(head_);
  if (score_ != nullptr) head.modules.push_back(score_);
  units.push_back(std::move(head));
  return units;
}

std::vector<double> Gpt::flops_of_units() const {
  // Two operations per weight and token forward, four backward. Attention has two products of [time, time, channels],
  // or [time, window, channels]; savings from the causal mask do not count, as in PaLM's definition of model FLOPs
  // (arXiv:2204.02311, app. B). Only those experts count that a token uses.
  const auto tokens = static_cast<double>(sample_tokens_), channels = static_cast<double>(sizes_.channels);
  const auto all_heads = static_cast<double>(sizes_.heads * sizes_.head_channels);
  const double key_share = static_cast<double>(sizes_.key_heads) / static_cast<double>(sizes_.heads);
  const double attention = channels * all_heads * (2 + 2 * key_share);
  const double matrix = (sizes_.gated ? 3 : 2) * channels;
  const double dense = matrix * static_cast<double>(sizes_.inner);
  const double experts = channels * static_cast<double>(spec_.n_expert) +
                         matrix * static_cast<double>(spec_.experts_per_token * sizes_.expert_inner);
  std::vector<double> flops{0};  // an embedding is looked up
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int64_t window = sizes_.windows[i];
    const double keys = window > 0 ? std::min(static_cast<double>(window), tokens) : tokens;
    flops.push_back(6 * tokens * (attention + (sizes_.sparse[i] ? experts : dense)) + 12 * all_heads * tokens * keys);
  }
  flops.push_back(sizes_.classes > 0 ? 0 : 6 * tokens * channels * static_cast<double>(sizes_.vocabulary));
  return flops;
}

double Gpt::flops_per_sample() const {
  const std::vector<double> of_units = flops_of_units();
  return std::accumulate(of_units.begin(), of_units.end(), 0.0);
}

namespace {
const config::Registered<Gpt, GptSpec> registered_gpt{catalog(), "gpt",
                                                      "decoder-only transformer: GPT-2, Llama and their kin"};
}  // namespace

}  // namespace gputrain::models
