#include "gputrain/parallel/replicas.hpp"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::parallel {
namespace {

std::string shape_text(const std::string& name, const at::Tensor& tensor) {
  std::string text = name + ' ' + c10::toString(tensor.scalar_type());
  for (const int64_t size : tensor.sizes()) text += ' ' + std::to_string(size);
  for (const int64_t stride : tensor.strides()) text += ' ' + std::to_string(stride);
  return text + '\n';
}

std::string layout_text(const device::Arena& arena, const NamedTensors& buffers) {
  std::string text;
  for (const device::Segment& segment : arena.segments()) {
    text += std::to_string(segment.offset) + ' ' + shape_text(segment.name, arena.view(arena.values(), segment));
  }
  for (const auto& [name, buffer] : buffers) text += shape_text(name, buffer);
  return text;
}

/// The bits of a tensor as whole numbers, in memory order for a dense one.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous().view({-1});
  switch (flat.itemsize()) {
    case 8:
      return flat.view(at::kLong);
    case 4:
      return flat.view(at::kInt);
    case 2:
      return flat.view(at::kShort);
    default:
      return flat.view(at::kByte);
  }
}

/// The sum of every element's bits times an odd number of its own, modulo 2^64: one changed element always changes it,
/// and it does not depend on the order of adding. [1] int64 on the tensor's device.
at::Tensor hash_of(const at::Tensor& tensor) {
  constexpr int64_t kChunk = int64_t{1} << 22;  // bounds the temporaries
  const at::Tensor bits = bits_of(tensor.detach());
  at::Tensor sum = at::zeros({1}, bits.options().dtype(at::kLong));
  for (int64_t begin = 0; begin < bits.numel(); begin += kChunk) {
    const int64_t size = std::min(kChunk, bits.numel() - begin);
    at::Tensor weights = at::arange(2 * begin + 1, 2 * (begin + size) + 1, 2, sum.options());
    sum.add_(weights.mul_(bits.narrow(0, begin, size)).sum());
  }
  return sum;
}

}  // namespace

void check_same_layout(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers) {
  if (groups.alone()) return;
  const auto hash = static_cast<int64_t>(stable_hash(layout_text(arena, buffers)));
  const auto count = static_cast<int64_t>(arena.segments().size());
  const at::Tensor all = groups.control().all_gather(at::tensor({hash, count, arena.values().numel()}), "model layout");
  const auto* rows = all.const_data_ptr<int64_t>();
  for (int rank = 1; rank < groups.world_size(); ++rank) {
    const int64_t* row = rows + 3 * rank;
    if (row[0] == rows[0]) continue;
    throw Error(ExitCode::usage,
                {.what = "the ranks built different models: rank 0 has " + std::to_string(rows[1]) + " tensors of " +
                         std::to_string(rows[2]) + " numbers with padding, rank " + std::to_string(rank) + " has " +
                         std::to_string(row[1]) + " of " + std::to_string(row[2]) +
                         (row[2] == rows[2] ? ", with other names, shapes or types" : ""),
                 .hint = "start every rank with the same job file, the same data and the same gputrain"});
  }
}

void broadcast(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers) {
  groups.tensors().broadcast(arena.values(), 0, "parameters");
  broadcast(groups, buffers);
}

void broadcast(comm::ProcessGroups& groups, const NamedTensors& buffers) {
  if (groups.alone()) return;
  for (const auto& [name, buffer] : buffers) {
    const at::Tensor dense = buffer.detach().contiguous();
    groups.tensors().broadcast(dense, 0, name);
    if (!dense.is_alias_of(buffer)) buffer.detach().copy_(dense);
  }
}

void check_replicas(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers) {
  if (groups.alone()) return;
  std::vector<std::string> names;
  std::vector<at::Tensor> hashes;
  for (const device::Segment& segment : arena.segments()) {
    names.push_back(segment.name);
    hashes.push_back(hash_of(arena.values().narrow(0, segment.offset, segment.padded)));
  }
  for (const auto& [name, buffer] : buffers) {
    names.push_back(name);
    hashes.push_back(hash_of(buffer));
  }
  const auto count = static_cast<int64_t>(names.size());
  const at::Tensor all = groups.control().all_gather(at::cat(hashes).cpu(), "replica hashes");
  const auto* rows = all.const_data_ptr<int64_t>();
  for (int64_t rank = 1; rank < groups.world_size(); ++rank) {
    for (int64_t i = 0; i < count; ++i) {
      if (rows[rank * count + i] == rows[i]) continue;
      throw Error(ExitCode::environment, {.what = "the replicas have drifted apart: " + names[static_cast<size_t>(i)] +
                                                  " on rank " + std::to_string(rank) + " is not what rank 0 has",
                                          .hint = "memory or a device may be faulty; rank " + std::to_string(rank) +
                                                  " runs on " + groups.hosts()[static_cast<size_t>(rank)]});
    }
  }
}

}  // namespace gputrain::parallel
