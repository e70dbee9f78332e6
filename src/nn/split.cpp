#include "gputrain/nn/split.hpp"

#include <algorithm>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace gputrain::nn {

at::Tensor part_of(const device::Split& split, const at::Tensor& whole) {
  std::vector<at::Tensor> parts;
  for (const auto& [begin, end] : split.ranges()) parts.push_back(whole.narrow(split.dim, begin, end - begin));
  return at::cat(parts, split.dim);
}

at::Tensor whole_of(const device::Split& split, const at::Tensor& part, comm::Group& group) {
  int64_t most = 0;  // size of the largest rank; all send as much
  for (int rank = 0; rank < split.ranks; ++rank) most = std::max(most, split.size_of(rank));
  const at::Tensor rows = part.movedim(split.dim, 0);
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = most;
  const at::Tensor sent = at::zeros(sizes, rows.options());
  sent.narrow(0, 0, rows.size(0)).copy_(rows);
  const at::Tensor all = group.all_gather(sent, "parts of a tensor");
  sizes[0] = split.whole_size();
  const at::Tensor whole = at::empty(sizes, rows.options());
  for (int rank = 0; rank < split.ranks; ++rank) {
    int64_t at = 0;
    for (const auto& range : split.ranges_of(rank)) {
      whole.narrow(0, range.begin, range.size()).copy_(all.select(0, rank).narrow(0, at, range.size()));
      at += range.size();
    }
  }
  return whole.movedim(0, split.dim).contiguous();
}

}  // namespace gputrain::nn
