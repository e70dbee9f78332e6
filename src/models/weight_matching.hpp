// Matching of a file's tensors to a model's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gputrain/device/split.hpp"
#include "gputrain/models/pretrained.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {

struct MatchedWeights {
  std::map<std::string, at::Tensor> pairs;          // name in the source -> our tensor
  std::map<std::string, device::Split> splits;      // splits of those tensors that ranks share, by name in the source
  std::map<std::string, at::Tensor> fitted;         // tensors of the source that are changed before they fill ours
  std::map<std::string, const nn::Linear*> packed;  // layers of ours that are packed, by name in the source
  NotLoaded not_loaded;
};

/// Returns the tensor with these of its rows, as TensorSource::class_rows says; the tensor itself if nothing changes.
at::Tensor in_order_of_classes(const at::Tensor& tensor, const std::vector<int64_t>& rows);

/// Throws Error(data) that lists every difference.
MatchedWeights match_weights(Model& model, const TensorSource& source, OtherClasses other_classes);
MatchedWeights match_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source);

}  // namespace gputrain::models
