// Which tensor of a file fills which tensor of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gputrain/device/split.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {

struct MatchedWeights {
  std::map<std::string, at::Tensor> pairs;      // name in the source -> our tensor
  std::map<std::string, device::Split> splits;  // of those of our tensors that ranks share, by name in the source
  std::map<std::string, at::Tensor> fitted;     // those of the source that are changed before they fill ours
  NotLoaded not_loaded;
};

/// The tensor with these of its rows, as TensorSource::class_rows says; the tensor itself where that changes nothing.
at::Tensor in_order_of_classes(const at::Tensor& tensor, const std::vector<int64_t>& rows);

/// Throws Error(data) that lists every difference.
MatchedWeights match_weights(Model& model, const TensorSource& source, OtherClasses other_classes);
MatchedWeights match_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source);

}  // namespace gputrain::models
