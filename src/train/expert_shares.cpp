#include "gputrain/train/expert_shares.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "gputrain/nn/experts.hpp"

namespace gputrain::train {

monitor::Metrics expert_shares(models::Model& model, comm::ProcessGroups& groups) {
  auto* const counting = dynamic_cast<nn::ExpertCounts*>(&model);
  at::Tensor counts = counting != nullptr ? counting->take_expert_counts() : at::Tensor();
  if (!counts.defined()) return {};
  groups.tensors().all_reduce_sum(counts, "tokens of experts").wait();
  const at::Tensor here = counts.cpu(), shares = here / here.sum(1, /*keepdim=*/true);
  if (here.sum(1).min().item<double>() == 0) return {};
  return {{"train/expert_share_max", shares.max().item<double>()},
          {"train/expert_share_min", shares.min().item<double>()}};
}

}  // namespace gputrain::train
