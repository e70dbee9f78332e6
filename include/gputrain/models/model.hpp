// A model: takes a batch, returns a loss sum or evaluation statistics. One architecture per file in src/models.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/catalog.hpp"
#include "gputrain/core/batch.hpp"
#include "gputrain/nn/module.hpp"
#include "gputrain/ops/head_loss.hpp"

namespace gputrain::models {

/// What the data says about the two ends of a model; options that are null in the job are filled from here.
struct DataFacts {
  std::vector<int64_t> input_shape;  // one sample: [channels, height, width], [time], or sizes as the dataset has them
  int64_t num_classes = 0;           // classes, or vocabulary size
};

/// Additive sums over targets; finished into rates only when printed.
struct Statistics {
  at::Tensor loss_sum;  // double scalar on the model's device
  at::Tensor correct1;  // int64 scalar: the highest logit is the target
  at::Tensor correct5;  // int64 scalar: the target is among the five highest logits (all, with fewer classes)
};

/// A stretch of the model whose parameters live together: stem, each block, head. The arena keeps them in the order of
/// this list, and gradient buckets are made of neighbours.
struct Unit {
  std::string name;                  // "stem", "layer1.0", "h.3", "head"
  std::vector<nn::Module*> modules;  // owned by the model
};

class Model : public nn::Module {
 public:
  using nn::Module::Module;
  ~Model() override;

  /// Logits [batch, classes], or [batch, time, vocabulary], for inputs as in Batch::inputs. Any operators of ATen will
  /// do; in 16 bits, those of ops/ and the layers of nn/ cast by context().policy, and ATen's compute in fp32.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  /// The units in execution order; together they hold every parameter exactly once. `{{"all", {this}}}` will do. The
  /// last module of the last unit is the layer that gives the classes: pretrained weights may have others.
  virtual std::vector<Unit> units() = 0;

  /// The sum over targets (not the mean) of the cross entropy, in at least fp32; on the autograd graph multiplied by
  /// `weight`, a 0-dim double on the model's device, or undefined for 1: see ops::cross_entropy.
  ops::Loss loss(const Batch& batch, double label_smoothing, const at::Tensor& weight = {});

  /// The same sum without smoothing and the counts of hits, without building a graph; call in evaluation mode.
  Statistics evaluate(const Batch& batch);

  /// The config.json of the ecosystem's model that reads our model.safetensors; null when there is none.
  virtual nlohmann::json ecosystem_config() const;

  /// The parameter or buffer of ours that a tensor of a weights file fills; empty for one to be passed over.
  virtual std::string parameter_of(const std::string& file_name) const;

  /// Whether anything of this model can be computed again in this way.
  virtual bool offers(nn::Recompute) const { return false; }

  /// Whether images may be of another size in evaluation than in training.
  virtual bool takes_any_size() const { return true; }

  /// Floating-point operations of forward and backward for one sample (6 N D rule refined by the model); 0: unknown.
  virtual double flops_per_sample() const { return 0; }

 protected:
  /// The model up to its last layer, and that layer.
  struct LastLayer {
    at::Tensor features;
    ops::Head head;
    int64_t classes = 0;  // of its columns
  };
  /// A block of a model that offers nn::Recompute::block, by which it may be run again in the backward pass.
  at::Tensor run_block(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& block) const {
    return nn::recomputed_block(context().recompute, {x},
                                [block](const std::vector<at::Tensor>& t) { return std::vector{block(t[0])}; })[0];
  }

  /// What `loss` and `evaluate` work on: for models whose logits are large, or have more columns than classes. As it is
  /// here, the features are the logits that `forward` gives.
  virtual LastLayer last_layer(const at::Tensor& inputs);
};

using ModelCatalog = config::Catalog<Model, const nn::Context&, const DataFacts&>;
ModelCatalog& catalog();

}  // namespace gputrain::models
