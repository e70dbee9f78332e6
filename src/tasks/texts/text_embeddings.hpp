// Functions that tasks of embeddings share.
#pragma once

#include <string_view>
#include <vector>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Returns the embeddings [batch, channels] of the texts in a field, in at least fp32.
at::Tensor embeddings_of(models::Model& model, const Batch& batch, std::string_view field);

/// Scales to unit length, like torch.nn.functional.normalize.
at::Tensor unit_length(const at::Tensor& embeddings);

/// Returns the cosines of the rows of a with those of b, one by one.
at::Tensor cosines(const at::Tensor& a, const at::Tensor& b);

/// Returns the numbers of first channels that are learned, those of `matryoshka` and all; losses are summed over them
/// (Kusupati et al., "Matryoshka representation learning", arXiv:2205.13147).
std::vector<int64_t> lengths_to_learn(const std::vector<int64_t>& matryoshka, int64_t channels);

/// Gathers rows of all ranks, those of rank 0 first; gradients flow back to their rank. `rows` [n, channels], with the
/// same n on every rank. Every rank must call, also in the backward pass.
at::Tensor rows_of_all_ranks(const at::Tensor& rows, comm::ProcessGroups& groups);

}  // namespace gputrain::tasks
