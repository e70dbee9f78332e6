#include "support/checkpoints.hpp"

#include <cstring>
#include <map>
#include <set>

#include <ATen/core/Tensor.h>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::testing_support {
namespace {

using checkpoint::Checkpoint;

Checkpoint opened(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "manifest.json")) return Checkpoint::open(folder);
  const auto all = folder / "ckpt";
  return checkpoint::find_newest({checkpoint::branch_folder(all, checkpoint::newest_branch_in(all))}).newest.value();
}

std::map<std::string, at::Tensor> tensors_of(const Checkpoint& from) {
  std::set<std::string> parts;
  for (const auto& [name, file] : from.manifest().files)
    if (!file.part.empty()) parts.insert(file.part);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& part : parts)
    for (const std::string& name : from.part(part).names()) tensors[part + " " + name] = from.part(part).tensor(name);
  return tensors;
}

bool has_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

std::vector<std::string> differing_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto first = tensors_of(opened(a)), second = tensors_of(opened(b));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : first) {
    const auto other = second.find(name);
    if (other == second.end() || !has_same_bits(tensor, other->second)) names.push_back(name);
  }
  for (const auto& [name, tensor] : second)
    if (!first.contains(name)) names.push_back(name);
  return names;
}

}  // namespace gputrain::testing_support
