#include "counted_rows.hpp"

#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/sort.h>

#include "gputrain/data/batch.hpp"

namespace gputrain::tasks {

at::Tensor counted_places(const at::Tensor& targets, int64_t most) {
  if (most == 0) return targets.ne(kIgnoreIndex).nonzero().squeeze(1);
  const at::Tensor order =
      std::get<1>(at::sort(targets.eq(kIgnoreIndex), /*stable=*/std::optional<bool>(true), /*dim=*/0));
  return order.narrow(0, 0, std::min(most, order.size(0)));
}

bool costs_little(const ops::Head& head, const at::Tensor& features) {
  return head.logits && head.columns > features.size(-1);
}

}  // namespace gputrain::tasks
