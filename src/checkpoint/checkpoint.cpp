#include "gputrain/checkpoint/checkpoint.hpp"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "manifest.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string shown(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  const Manifest manifest = verify(folder, /*hashes=*/true);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.step_ = manifest.step;
  for (const auto& [name, seal] : manifest.files) {
    if (!name.ends_with(kTensorSuffix)) continue;
    checkpoint.files_.emplace(name.substr(0, name.size() - std::string_view(kTensorSuffix).size()),
                              SafetensorsFile(folder / name, ExitCode::checkpoint));
  }
  try {
    checkpoint.state_ = std::make_shared<const nlohmann::json>(nlohmann::json::parse(read_text(folder / kStateName)));
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::checkpoint, {.what = "not JSON", .where = (folder / kStateName).string()});
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::file_names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const SafetensorsFile& Checkpoint::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    throw Error(ExitCode::checkpoint,
                {.what = fmt::format("has no {}{}", name, kTensorSuffix), .where = folder_.string()});
  }
  return found->second;
}

NamedTensors per_parameter(const device::Arena& arena, const optim::Optimizer::State& state) {
  NamedTensors tensors = state.scalars;
  for (const auto& [kind, flat] : state.flat) {
    for (const device::Segment& segment : arena.segments()) {
      tensors.emplace_back(kind + "." + segment.name, arena.view(flat, segment));
    }
  }
  return tensors;
}

void restore(const SafetensorsFile& file, const NamedTensors& live) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::checkpoint, {.what = what,
                                       .where = file.path().string(),
                                       .hint = "resume with the job that wrote it, or set checkpoint.resume: never"});
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, tensor] : live) {
    const at::Tensor saved = file.tensor(name);
    if (saved.scalar_type() != tensor.scalar_type() || saved.sizes() != tensor.sizes()) {
      refuse(fmt::format("'{}' is {}, but {} in this job", name, shown(saved), shown(tensor)));
    }
    copies.emplace_back(tensor, saved);
  }
  if (live.size() != file.names().size()) {
    refuse(fmt::format("has {} tensors, this job {}", file.names().size(), live.size()));
  }
  for (const auto& [tensor, saved] : copies) tensor.detach().copy_(saved);
}

}  // namespace gputrain::checkpoint
