#include "gputrain/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/as_strided.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "block_file.hpp"
#include "gputrain/checkpoint/frozen.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

nlohmann::json read_state(const fs::path& path, const FileSeal& seal) {
  const std::string text = read_text(path);
  Sealer sealer;
  sealer.add(text.data(), text.size());
  if (sealer.seal() != seal) throw Damage("damaged: its hash differs", path);
  nlohmann::json state = parse_json(text);
  if (state.is_discarded()) throw Damage("not JSON", path);
  return state;
}

}  // namespace

void verify(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, file] : manifest.files) {
    if (seal_of(folder / name) != file.seal) throw Damage("damaged: its hash differs", folder / name);
  }
}

void verify_file(const fs::path& folder, const std::string& name) {
  const Manifest manifest = look_at_files(folder);
  if (manifest.frozen && manifest.frozen->file_name() == name) return verify_frozen(folder, *manifest.frozen);
  const auto file = manifest.files.find(name);
  if (file != manifest.files.end() && seal_of(folder / name) != file->second.seal)
    throw Damage("damaged: its hash differs", folder / name);
}

Checkpoint Checkpoint::look_into(const fs::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = look_at_files(folder);
  const auto& files = checkpoint.manifest_.files;
  checkpoint.state_ =
      std::make_shared<const nlohmann::json>(read_state(folder / kStateName, files.at(kStateName).seal));
  std::map<std::string, std::vector<Part::File>> parts;
  for (const auto& [name, file] : files) {
    if (!file.part.empty())
      parts[file.part].push_back({.path = folder / name, .seal = file.seal, .slices = file.slices});
  }
  if (const auto& frozen = checkpoint.manifest_.frozen)
    parts["model"].push_back(
        {.path = frozen_path(folder, *frozen), .seal = frozen->seal, .slices = {}, .is_shared = true});
  for (auto& [name, part] : parts) checkpoint.parts_.emplace(name, Part(std::move(part)));
  return checkpoint;
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  const Manifest manifest = look_at_files(folder);
  verify(folder, manifest);
  if (manifest.frozen) verify_frozen(folder, *manifest.frozen);
  return look_into(folder);
}

const Part& Checkpoint::part(const std::string& name) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) throw Damage("has no " + name + kTensorSuffix, folder_);
  return found->second;
}

namespace {

Cut cut_of(const device::Split& split) {
  Cut cut{.dim = split.dim, .ranges = {}};
  for (const auto& [begin, end] : split.ranges()) {
    if (begin < end) cut.ranges.push_back({begin, end});
  }
  return cut;
}

}  // namespace

std::vector<Part::Target> per_parameter(const device::Arena& arena, const at::Tensor& flat, const std::string& prefix) {
  std::vector<Part::Target> targets;
  for (const device::Segment& segment : arena.segments()) {
    const std::string name = prefix + segment.name;
    const int64_t end = segment.offset + segment.numel;
    for (const auto& [range, at] : arena.owned()) {
      const int64_t from = std::max(range.begin, segment.offset), until = std::min(range.end, end);
      if (segment.split && from < until) {
        targets.push_back({.name = name,
                           .tensor = flat.narrow(0, at + from - range.begin, until - from),
                           .slice = Slice{.shape = segment.split->whole_sizes(segment.sizes),
                                          .begin = from - segment.offset,
                                          .cut = cut_of(*segment.split)}});
      } else if (from == segment.offset && until == end) {
        targets.push_back({.name = name, .tensor = arena.state_view(flat, segment), .slice = std::nullopt});
      } else if (from < until) {
        targets.push_back(
            {.name = name,
             .tensor = flat.narrow(0, at + from - range.begin, until - from),
             .slice = Slice{.shape = segment.sizes, .begin = from - segment.offset, .order = segment.order()}});
      }
    }
  }
  return targets;
}

std::vector<Part::Target> values_per_parameter(const device::Arena& arena) {
  if (arena.keeps_owned_values_only()) return per_parameter(arena, arena.owned_values(), "");
  std::vector<Part::Target> targets;
  for (const device::Segment& segment : arena.segments()) {
    const at::Tensor values = at::as_strided(arena.values(), segment.sizes, segment.strides, segment.offset);
    Part::Target target{.name = segment.name, .tensor = values, .slice = std::nullopt};
    if (segment.split) {
      target.slice =
          Slice{.shape = segment.split->whole_sizes(segment.sizes), .begin = 0, .cut = cut_of(*segment.split)};
      target.tensor = target.tensor.view(-1);
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

std::vector<Part::Target> per_frozen_parameter(const device::Arena& arena) {
  std::vector<Part::Target> targets;
  for (const device::FrozenPart& part : arena.frozen_parts()) {
    const int64_t begin = arena.share() * part.own.numel(), end = begin + part.own.numel();
    for (const device::Segment& segment : part.segments) {
      const int64_t from = std::max(begin, segment.offset), until = std::min(end, segment.offset + segment.numel);
      if (from >= until) continue;
      targets.push_back(
          {.name = segment.name,
           .tensor = part.own.narrow(0, from - begin, until - from),
           .slice = Slice{.shape = segment.sizes, .begin = from - segment.offset, .order = segment.order()}});
    }
  }
  return targets;
}

std::vector<Part::Target> per_parameter(const device::Arena& arena, const optim::Optimizer::State& state) {
  std::vector<Part::Target> targets;
  for (const auto& [name, tensor] : state.scalars)
    targets.push_back({.name = name, .tensor = tensor, .slice = std::nullopt});
  for (const auto& [kind, flat] : state.flat) {
    for (Part::Target& target : per_parameter(arena, flat, kind + ".")) targets.push_back(std::move(target));
  }
  for (const auto& [kind, tensors] : state.of_weights) {
    for (const auto& [weight, tensor] : tensors)
      targets.push_back({.name = kind + "." + weight, .tensor = tensor, .slice = std::nullopt});
  }
  return targets;
}

}  // namespace gputrain::checkpoint
