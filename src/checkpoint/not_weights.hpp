// Says by its first bytes what a file is that cannot be read as weights.
#pragma once

#include <string>
#include <string_view>

namespace gputrain::checkpoint {

/// `what` completes "not a safetensors file but ..."; it is empty for a file of no known kind.
struct NotWeights {
  std::string what, hint = {};
};

/// Describes a file that has no weights. `begin`: the first kFileKindBytes of the file, or all of it.
NotWeights not_weights(std::string_view begin);

/// Python for a file of torch.save: a state dict, or a checkpoint that holds one, which Lightning calls state_dict,
/// PyTorch's tutorials model_state_dict, nanoGPT and timm model. save_file refuses tied weights: hence clone().
inline constexpr const char* kTorchConversion =
    "in Python: import torch, safetensors.torch; d = torch.load(FILE, map_location=\"cpu\", weights_only=True); "
    "d = next((d[k] for k in (\"state_dict\", \"model_state_dict\", \"model\") if k in d), d); "
    "safetensors.torch.save_file({k: v.contiguous().clone() for k, v in d.items()}, \"model.safetensors\")";

}  // namespace gputrain::checkpoint
