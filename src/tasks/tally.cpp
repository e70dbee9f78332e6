#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

/// Returns the rows with the largest first numbers, largest first, the earlier one first where they are equal.
at::Tensor largest(const at::Tensor& rows, int64_t most) {
  const at::Tensor order =
      std::get<1>(at::sort(rows.select(1, 0), /*stable=*/std::optional<bool>(true), /*dim=*/0, /*descending=*/true));
  return rows.index_select(0, order.narrow(0, 0, std::min(most, rows.size(0))));
}

/// Returns how many of this rank's rows, which are sorted, are among the largest of all ranks.
int64_t number_of_largest(const at::Tensor& rows, int64_t most, comm::ProcessGroups& groups) {
  at::Tensor keys = at::full({most}, -std::numeric_limits<double>::infinity(), at::kDouble);
  keys.narrow(0, 0, rows.size(0)).copy_(rows.select(1, 0));
  const at::Tensor all = groups.control().all_gather(keys, "largest evaluation rows").view({-1, 1});
  const at::Tensor ranks = at::arange(all.size(0), at::kDouble).div(most, "floor").unsqueeze(1);
  const at::Tensor here = largest(at::cat({all, ranks}, 1), most).select(1, 1).eq(groups.rank());
  return std::min(here.sum().item<int64_t>(), rows.size(0));
}

}  // namespace

Tally::Tally(const Parts& parts, at::Device device) : parts_(parts) {
  auto count = static_cast<int64_t>(parts.sums.size());
  for (const Vector& vector : parts.vectors) count += vector.entries;
  sums_ = at::zeros({count}, at::TensorOptions().dtype(at::kDouble).device(device));
  int64_t place = 0;
  for (const std::string& name : parts.sums) places_[name] = sums_.select(0, place++);
  for (const Vector& vector : parts.vectors)
    places_[vector.name] = sums_.narrow(0, std::exchange(place, place + vector.entries), vector.entries);
  for (const Rows& rows : parts.rows) rows_[rows.name];
}

void Tally::add(const std::string& name, const at::Tensor& sum) {
  const auto found = places_.find(name);
  GPUTRAIN_ASSERT(found != places_.end(), "the task does not list the sum '" + name + "'");
  found->second.add_(sum);
}

void Tally::append(const std::string& name, const at::Tensor& rows) {
  const auto found = rows_.find(name);
  GPUTRAIN_ASSERT(found != rows_.end(), "the task does not list the rows '" + name + "'");
  found->second.push_back(rows.to(at::kDouble));
  if (const int64_t most = part_of(name).most; most > 0) found->second = {largest(at::cat(found->second), most)};
}

const Tally::Rows& Tally::part_of(const std::string& name) const {
  return *std::ranges::find(parts_.rows, name, &Rows::name);
}

Totals Tally::merge(comm::ProcessGroups& groups) const {
  const int64_t count = sums_.numel();
  at::Tensor all = at::zeros({count + 1}, sums_.options());
  if (groups.mesh().counts_loss(groups.rank())) all.narrow(0, 0, count).copy_(sums_);
  all.narrow(0, count, 1).fill_(static_cast<double>(weight_));
  groups.tensors().all_reduce_sum(all, "evaluation sums").wait();
  const at::Tensor merged = all.to(at::kCPU);
  const double* values = merged.const_data_ptr<double>();
  Totals totals;
  for (const auto& name : parts_.sums) totals.sums[name] = *values++;
  for (const Vector& vector : parts_.vectors) {
    totals.vectors[vector.name] = merged.narrow(0, values - merged.const_data_ptr<double>(), vector.entries);
    values += vector.entries;
  }
  totals.weight = *values;
  for (const Rows& part : parts_.rows) totals.rows[part.name] = joined(part, groups);
  return totals;
}

/// Returns the rows of this rank that count, on the CPU.
at::Tensor Tally::own(const Rows& part, int64_t columns, comm::ProcessGroups& groups) const {
  const auto& pieces = rows_.at(part.name);
  const at::Tensor rows = pieces.empty() ? at::zeros({0, columns}, at::TensorOptions().dtype(at::kDouble))
                                         : at::cat(pieces).view({-1, columns}).to(at::kCPU);
  if (part.most == 0 || columns == 0 || groups.alone()) return rows;
  return rows.narrow(0, 0, number_of_largest(rows, part.most, groups));
}

/// Joins the rows of all ranks: each writes its rows at their place into zeros, and the all-reduced sum has all.
at::Tensor Tally::joined(const Rows& part, comm::ProcessGroups& groups) const {
  const auto& pieces = rows_.at(part.name);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  int64_t columns = part.columns;
  if (columns == 0) {
    const int64_t told = pieces.empty() ? 0 : pieces.front().size(-1);
    columns =
        groups.control().all_gather(at::full({1}, told, at::kLong), "columns of evaluation rows").max().item<int64_t>();
  }
  const at::Tensor own = this->own(part, columns, groups);
  if (groups.alone()) return own;
  const int64_t rank = groups.rank();
  at::Tensor counts = at::zeros({groups.world_size()}, at::kLong);
  counts.narrow(0, rank, 1).fill_(own.size(0));
  groups.control().all_reduce_sum(counts, "evaluation rows of each rank").wait();
  const at::Tensor before = counts.narrow(0, 0, rank).sum(), total = counts.sum();
  at::Tensor all = at::zeros({total.item<int64_t>(), columns}, options);
  if (own.size(0) > 0) all.narrow(0, before.item<int64_t>(), own.size(0)).copy_(own);
  if (all.numel() > 0) groups.control().all_reduce_sum(all, "evaluation rows").wait();
  return all;
}

}  // namespace gputrain::tasks
