#include "bitsandbytes.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::nn {

void refuse_packed(const FileTensors& files, const std::string& name, const std::string& what) {
  throw Error(ExitCode::data, {.what = "'" + name + "' " + what,
                               .where = files.where(name),
                               .hint = "get the folder again, or take the weights that it was quantised from"});
}

at::Tensor packed_tensor(const FileTensors& files, const std::string& name, at::ScalarType type, int64_t numel) {
  if (!files.has(name)) refuse_packed(files, name, "is missing: the weights beside it cannot be read without");
  const at::Tensor tensor = files.tensor(name);
  if (tensor.scalar_type() != type) {
    refuse_packed(files, name,
                  std::string("holds ") + at::toString(tensor.scalar_type()) + ", not " + at::toString(type));
  }
  if (tensor.numel() != numel) {
    refuse_packed(files, name,
                  "has " + std::to_string(tensor.numel()) + " numbers, and the matrix needs " + std::to_string(numel));
  }
  return tensor.reshape({-1});
}

std::string layer_of(const std::string& matrix) {
  constexpr std::string_view kWeight = "weight";
  return matrix.ends_with(".weight") ? matrix.substr(0, matrix.size() - kWeight.size()) : matrix + ".";
}

}  // namespace gputrain::nn
