// The dense layers of a model whose frozen weights are kept packed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {

struct PackRequest {
  const config::Choice& type;             // entry of nn::packings() for weights that are not packed yet
  const std::vector<std::string>& match;  // patterns of names, as in model.quantize.match; empty: all
  std::string key;                        // "model.quantize", for messages
  bool is_trained = true;                 // false: the model is only read, so that trainable weights are packed too
};

/// Packs the frozen weights of dense layers, but for the head and the routers of experts. Those that the source, a
/// published folder, has packed already are packed in its way, and then no others. Call before the arena is built.
/// Throws Error(usage) if there is nothing to pack, or a packed weight would be trained.
void pack_layers(Model& model, const PackRequest& request, const TensorSource& source);

/// Frobenius norms over the layers that are packed.
struct PackingErrors {
  double weights = 0;
  double rounding = 0;  // what packing changes
  double adapter = 0;   // what the adapter adds
};
/// Measures what packing would change in a model whose weights are not packed, and `keeps` the rounded weights.
PackingErrors round_layers(Model& model, const PackRequest& request, const TensorSource& source, bool keeps);

/// Packs one layer after the other of a model whose weights are not packed, and calls `visit` with the tensors that
/// pack_layers() would give it, by our names. The model stays as it is.
void each_packed_tensor(Model& model, const PackRequest& request, const TensorSource& source,
                        const std::function<void(const std::string& name, const at::Tensor& part)>& visit);

/// Returns, for each parameter of a packed layer, how many weights it stands for: all of them for the codes, else none.
std::map<std::string, int64_t> weights_of_packed(Model& model);

/// Adds the tensors of packed layers as files of the model's published family have them. Returns what a config.json
/// says of them as quantization_config; null: nothing is packed.
nlohmann::json add_packed_tensors(Model& model, std::vector<std::pair<std::string, at::Tensor>>& tensors);

/// Replaces packed weights by matrices, each in the type that it was packed from.
void unpack_layers(Model& model);

}  // namespace gputrain::models
