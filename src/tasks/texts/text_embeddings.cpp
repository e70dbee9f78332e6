#include "text_embeddings.hpp"

#include <algorithm>

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gputrain/core/error.hpp"
#include "gputrain/tasks/logits.hpp"

namespace gputrain::tasks {
namespace {

constexpr double kShortest = 1e-12;  // least divisor of a vector

struct GatheredRows : torch::autograd::Function<GatheredRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows,
                            comm::ProcessGroups* groups) {
    context->saved_data["groups"] = reinterpret_cast<int64_t>(groups);
    return groups->tensors().all_gather(rows.contiguous(), "embeddings of all ranks").flatten(0, 1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* groups = reinterpret_cast<comm::ProcessGroups*>(context->saved_data["groups"].toInt());
    const at::Tensor all = gradients[0].contiguous();
    groups->tensors().all_reduce_sum(all, "gradients of embeddings").wait();
    const int64_t rows = all.size(0) / groups->world_size();
    return {all.narrow(0, groups->rank() * rows, rows), at::Tensor()};
  }
};

}  // namespace

at::Tensor embeddings_of(models::Model& model, const Batch& batch, std::string_view field) {
  const BatchField* texts = batch.find(field);
  GPUTRAIN_ASSERT(texts != nullptr, "the batch has no field '" + std::string(field) + "'");
  Batch one;
  one.fields.push_back({kTokens, texts->values, texts->counts});
  one.samples = batch.samples;
  one.samples_on_all_ranks = batch.samples_on_all_ranks;
  const auto last = model.last_layer(one);
  return wide(last.head.logits ? last.head.logits(last.features) : last.features);
}

at::Tensor unit_length(const at::Tensor& embeddings) {
  const at::Tensor lengths = at::linalg_vector_norm(embeddings, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
  return at::div(embeddings, at::clamp_min(lengths, kShortest));
}

at::Tensor cosines(const at::Tensor& a, const at::Tensor& b) { return at::mul(unit_length(a), unit_length(b)).sum(-1); }

std::vector<int64_t> lengths_to_learn(const std::vector<int64_t>& matryoshka, int64_t channels) {
  std::vector<int64_t> lengths{channels};
  for (const int64_t length : matryoshka) {
    if (length > channels)
      throw Error(ExitCode::usage, {.what = "the model's embeddings have " + std::to_string(channels) + " channels",
                                    .where = "task.config.matryoshka",
                                    .hint = "numbers up to that one"});
    if (length < channels) lengths.push_back(length);
  }
  return lengths;
}

at::Tensor rows_of_all_ranks(const at::Tensor& rows, comm::ProcessGroups& groups) {
  return groups.alone() ? rows : GatheredRows::apply(rows, &groups);
}

}  // namespace gputrain::tasks
