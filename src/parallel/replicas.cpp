#include "gputrain/parallel/replicas.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::parallel {
namespace {

std::string shape_text(const std::string& name, at::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::string text = name + ' ' + c10::toString(type);
  for (const int64_t size : sizes) text += ' ' + std::to_string(size);
  for (const int64_t stride : strides) text += ' ' + std::to_string(stride);
  return text + '\n';
}

std::string shape_text(const std::string& name, const at::Tensor& tensor) {
  return shape_text(name, tensor.scalar_type(), tensor.sizes(), tensor.strides());
}

std::string layout_text(const device::Arena& arena, const NamedTensors& buffers) {
  std::string text;
  for (const device::Segment& segment : arena.segments()) {
    text +=
        std::to_string(segment.offset) + ' ' + shape_text(segment.name, arena.type(), segment.sizes, segment.strides);
  }
  for (const auto& [name, value] : arena.frozen()) text += "frozen " + shape_text(name, value);
  for (const auto& [name, buffer] : buffers) text += shape_text(name, buffer);
  return text;
}

/// Returns the bits of a tensor as integers, in row-major order.
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

/// Returns the sum of each element's bits times an odd number for its position, modulo 2^64. A single changed element
/// always changes it, and the order of summation does not matter. [1] int64 on the tensor's device.
at::Tensor hash_of(const at::Tensor& tensor) {
  const at::Tensor bits = bits_of(tensor.detach());
  const int64_t chunk = int64_t{1} << (bits.is_cpu() ? 15 : 22);  // on a CPU, temporaries fit the cache
  at::Tensor sum = at::zeros({1}, bits.options().dtype(at::kLong));
  for (int64_t begin = 0; begin < bits.numel(); begin += chunk) {
    const int64_t size = std::min(chunk, bits.numel() - begin);
    at::Tensor weights = at::arange(2 * begin + 1, 2 * (begin + size) + 1, 2, sum.options());
    sum.add_(weights.mul_(bits.narrow(0, begin, size)).sum());
  }
  return sum;
}

/// Ranks that have the same: `first`, and those before `end` that follow in steps of `stride`.
struct Peers {
  int first = 0, stride = 1, end = 0;
};

/// `hashes`: of one tensor, by rank. If most ranks agree, the other one is at fault; with two ranks nobody can tell
/// which one.
[[noreturn]] void tell_drift(const comm::ProcessGroups& groups, const std::string& tensor,
                             const std::vector<int64_t>& hashes, const Peers& peers, const std::string& when) {
  const auto votes = [&](int64_t hash) { return std::ranges::count(hashes, hash); };
  const int64_t common = *std::ranges::max_element(hashes, {}, votes);  // in a tie, the lowest rank's
  const bool is_majority = 2 * votes(common) > std::ssize(hashes);
  const auto other = std::ranges::find_if(hashes, [&](int64_t hash) { return hash != common; }) - hashes.begin();
  const auto first = static_cast<size_t>(peers.first), odd = first + static_cast<size_t>(other * peers.stride);
  const std::string host = groups.hosts()[odd], suspects = is_majority ? host : host + " or " + groups.hosts()[first];
  throw Error(ExitCode::refused,
              {.what = "the replicas have drifted apart" + (when.empty() ? "" : " " + when) + ": " + tensor +
                       " on rank " + std::to_string(odd) + " is not what " +
                       (is_majority ? "the other ranks have" : "rank " + std::to_string(first) + " has"),
               .where = "rank " + std::to_string(odd) + " on " + host,
               .hint = "memory or a device of " + suspects +
                       " may be faulty; no checkpoint was written since the replicas were "
                       "last equal: run the same command to resume from the newest one"});
}

/// Throws if the ranks' `hashes` of a tensor, by rank, differ among peers.
void check_equal(const comm::ProcessGroups& groups, const std::string& tensor, const int64_t* hashes,
                 const Peers& peers, const std::string& when) {
  std::vector<int64_t> of_peers;
  for (int rank = peers.first; rank < peers.end; rank += peers.stride) of_peers.push_back(hashes[rank]);
  if (std::ranges::adjacent_find(of_peers, std::not_equal_to<>()) != of_peers.end())
    tell_drift(groups, tensor, of_peers, peers, when);
}

/// Returns the largest number of any stage, because stages have other units of the model. Every rank must call.
int64_t most_of_any_stage(comm::ProcessGroups& groups, int64_t here) {
  if (groups.mesh().pipeline == 1) return here;
  return groups.control().all_gather(at::tensor({here}, at::kLong), "number of hashes").max().item<int64_t>();
}

}  // namespace

void check_same_layout(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers) {
  if (groups.alone()) return;
  const auto hash = static_cast<int64_t>(stable_hash(layout_text(arena, buffers)));
  const auto count = static_cast<int64_t>(arena.segments().size());
  const at::Tensor all = groups.control().all_gather(at::tensor({hash, count, arena.numel()}), "model layout");
  for (int rank = 1; rank < groups.world_size(); ++rank) {
    const int first = groups.mesh().first_like(rank);
    const int64_t *rows = all.const_data_ptr<int64_t>() + 3 * first, *row = rows + 3 * (rank - first);
    if (row[0] == rows[0]) continue;
    throw Error(
        ExitCode::usage,
        {.what = "the ranks built different models: rank " + std::to_string(first) + " has " + std::to_string(rows[1]) +
                 " tensors of " + std::to_string(rows[2]) + " elements with padding, rank " + std::to_string(rank) +
                 " has " + std::to_string(row[1]) + " of " + std::to_string(row[2]) +
                 (row[2] == rows[2] ? ", with other names, shapes or types" : ""),
         .hint = "start every rank with the same job file, the same data and the same gputrain"});
  }
}

void broadcast(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers) {
  if (!arena.keeps_owned_values_only()) {
    if (!groups.mesh().has_parts_of_model()) {
      groups.tensors().broadcast(arena.values(), 0, "parameters");
    } else {  // among those with the same part of the model
      groups.replicas().broadcast(arena.values(), 0, "parameters");
      groups.shards().broadcast(arena.values(), 0, "parameters");
    }
    for (const at::Tensor& flat : arena.frozen_values())
      groups.tensors().broadcast(flat.view(at::kByte), 0, "frozen parameters");
  }
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

void check_replicas(comm::ProcessGroups& groups, const device::Arena& arena, const NamedTensors& buffers,
                    const std::string& when) {
  if (groups.alone()) return;
  const comm::Mesh& mesh = groups.mesh();
  std::vector<std::string> names;
  std::vector<at::Tensor> hashes;
  std::vector<int64_t> strides;  // distance between ranks that have the same tensor
  const auto add = [&](const std::string& name, const at::Tensor& tensor, int64_t stride) {
    names.push_back(name);
    hashes.push_back(hash_of(tensor));
    strides.push_back(stride);
  };
  if (!arena.keeps_owned_values_only()) {
    for (const device::Segment& segment : arena.segments())
      add(segment.name, arena.values().narrow(0, segment.offset, segment.padded), segment.split ? mesh.tensor : 1);
    for (const auto& [name, tensor] : arena.frozen()) add(name, tensor, 1);
  } else if (mesh.replicas > 1) {
    const auto add_part = [&](const char* kind, const at::Tensor& values) {
      add("part " + std::to_string(names.size()) + " of the " + kind + " of its shard", values,
          mesh.shards() * mesh.tensor);
    };
    for (const device::Piece& piece : arena.owned())
      add_part("weights", arena.owned_values().narrow(0, piece.at, piece.range.size()));
    for (const at::Tensor& flat : arena.frozen_values()) add_part("frozen weights", flat);
  }
  for (const auto& [name, tensor] : buffers) add(name, tensor, 1);
  const int64_t rows = most_of_any_stage(groups, std::ssize(names));
  if (rows == 0) return;
  hashes.push_back(at::zeros({rows - std::ssize(names)}, arena.options().dtype(at::kLong)));
  strides.resize(static_cast<size_t>(rows), 1);
  const at::Tensor mine = at::cat({at::cat(hashes).cpu(), at::tensor(strides, at::kLong)});
  const at::Tensor all = groups.control().all_gather(mine, "replica hashes").t().contiguous();
  const auto* of_tensor = all.const_data_ptr<int64_t>();  // one hash per rank, and after all hashes one stride
  for (int64_t i = 0; i < rows; ++i, of_tensor += groups.world_size()) {
    for (int begin = 0; begin < mesh.ranks; begin += mesh.stage_ranks()) {
      const int stage = mesh.stage_of(begin);
      const bool is_here = stage == mesh.stage_of(groups.rank()) && i < std::ssize(names);
      const std::string name = is_here ? names[static_cast<size_t>(i)]
                                       : "tensor " + std::to_string(i) + " of stage " + std::to_string(stage);
      const auto stride = static_cast<int>(of_tensor[rows * groups.world_size() + begin]);
      for (int first = begin; first < begin + stride; ++first)
        check_equal(groups, name, of_tensor, {.first = first, .stride = stride, .end = begin + mesh.stage_ranks()},
                    when);
    }
  }
}

}  // namespace gputrain::parallel
