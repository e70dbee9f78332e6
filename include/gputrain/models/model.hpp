// Model: turns a batch into features and names the layer that computes logits from them; a task gives the logits their
// meaning. One architecture per file in src/models.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/nn/key_values.hpp"
#include "gputrain/nn/module.hpp"
#include "gputrain/nn/transformer.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"

namespace gputrain::models {

/// Facts of the data about a model's inputs and outputs; they fill options that are null in the job.
struct DataFacts {
  std::vector<int64_t> input_shape;  // one sample: [channels, height, width], [time], or the dataset's own sizes
  int64_t longest_text = 0;          // tokens, where the job limits them; 0: as long as the samples
  int64_t num_classes = 0;           // classes, or vocabulary size
  int64_t vocabulary = 0;            // tokens are numbers below this; 0: the inputs are no tokens
  std::vector<std::string> class_names = {};  // in order of their numbers; empty: they have none
};

/// Part of the model whose parameters are stored together: stem, each block, head. The arena keeps the order of the
/// units, and a gradient bucket consists of neighbours.
struct Unit {
  std::string name;                  // "stem", "layer1.0", "h.3", "head"
  std::vector<nn::Module*> modules;  // owned by the model
};

/// Abilities of a model, and properties that rule out other features, as its spec says before it is built.
struct Abilities {
  /// Whether forward passes announce by nn::UnitRange which unit computes: ranks that share the weights then gather
  /// those of that unit. Code that reads weights of another unit calls nn::borrow_weights().
  bool announces_units = false;
  bool takes_parts_of_texts = false;  // whether last_layer() takes a batch with Batch::is_part_of_texts
  /// Whether ranks share its layers if nn::Context::tensor_group is set. Its constructor throws Error(usage) for a
  /// number of ranks that cannot share them.
  bool splits_layers = false;
  /// Whether it can run in parts (pipeline parallelism): it has flops_of_units() and the three functions after it, and
  /// last_layer() takes a batch with Batch::hidden.
  bool runs_in_parts = false;
  bool recomputes_blocks = false, recomputes_selectively = false;  // as nn::Context::recompute asks
  bool ties_ends = false;                                          // whether it has shared_by_ends()
  bool drops_out = false;                                          // whether it has dropout
  bool adds_noise = false;                                         // whether it adds noise to embeddings
  bool norms_across_heads = false;
  bool has_router_losses = false;

  bool recomputes(nn::Recompute how) const noexcept {
    return nn::is_of_blocks(how) ? recomputes_blocks : how == nn::Recompute::selective && recomputes_selectively;
  }
};

class Model : public nn::Module {
 public:
  using nn::Module::Module;
  ~Model() override;

  /// Returns logits [batch, classes], [batch, time, vocabulary] or, per pixel, [batch, height, width, classes] for the
  /// first field of a batch. Any ATen operators may be used. In 16 bits, ops/ and the layers of nn/ cast by
  /// context().policy, and ATen's operators compute in fp32.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  /// Lists the units in execution order; each parameter belongs to exactly one. `{{"all", {this}}}` is enough. The last
  /// module of the last unit is the layer that gives the classes: pretrained weights may have other classes.
  virtual std::vector<Unit> units() = 0;

  /// Lists modules that only one purpose of the model needs. Weights that were trained for another purpose may lack all
  /// of a module's parameters, which then keep their values.
  virtual std::vector<nn::Module*> head_parts() { return {}; }

  /// Input of the model's last layer, and that layer.
  struct LastLayer {
    at::Tensor features;
    ops::Head head;
    int64_t classes = 0;         // number of columns that are classes
    at::Tensor extra_loss = {};  // 0-dim: added to the mean loss of the batch in training; undefined: nothing
  };
  /// Returns the features and the layer from which tasks compute losses and metrics. Override it if logits are large or
  /// have more columns than classes, or if the model reads more than the batch's first field. By default the features
  /// are the logits of `forward`. The loss may write over the features.
  virtual LastLayer last_layer(const Batch& batch);

  /// Tokens that a language model reads after others.
  struct NextTokens {
    at::Tensor tokens;       // int64 [batch, time]
    at::Tensor positions;    // int64 [batch, time]: position of each token in its own text
    bool is_padded = false;  // rows begin with padding, whose positions are 0 as for the first token of a text
    at::Tensor begins = {};  // int64 [batch]: start of each row's text in memory; undefined: not needed
    /// int64 [1]: index of the next token in a memory that has room for it (nn::KeyValues::reserve()), whose sizes then
    /// do not change. Undefined: after all others.
    at::Tensor place = {};
  };
  /// Keys and values of the tokens read so far, by layer; empty: none.
  using Memory = std::vector<nn::KeyValues>;

  /// Limits of a model that offers next_logits(): tokens below `vocabulary`, at most `length` of them in a text.
  struct TextLimits {
    int64_t vocabulary = 0, length = 0;
  };
  /// Returns nothing if the model does not offer next_logits().
  virtual std::optional<TextLimits> text_limits() const { return std::nullopt; }
  /// Returns logits [batch, vocabulary] after the last token, and adds the tokens to `earlier`. With `place`, which
  /// needs `begins`, it calls the same operators for every token, so a pass may be recorded. Call it in evaluation mode
  /// and without gradients. Throws Error(usage) if the model does not offer it.
  virtual at::Tensor next_logits(const NextTokens& next, Memory& earlier);

  /// Returns the floating-point operations per sample of each unit, in order.
  virtual std::vector<double> flops_of_units() const { return {}; }
  /// Runs the units from Batch::first_unit to before `end`, which is not the last one. Returns the input of unit `end`.
  virtual at::Tensor run_units(const Batch& batch, int64_t end);
  /// Allocates memory for the result of run_units(), whatever the units.
  virtual at::Tensor empty_hidden(const Batch& batch) const;
  /// Returns the parameter of the first unit that the last one reads too; undefined: there is none.
  virtual at::Tensor shared_by_ends() const { return {}; }

  /// Returns whether images in evaluation may have another size than in training.
  virtual bool takes_any_size() const { return true; }

  /// Returns the floating-point operations per sample, forward and backward (6 N D rule or better); 0: unknown.
  virtual double flops_per_sample() const { return 0; }

 protected:
  /// Runs block.forward(x), for a block of a model that recomputes_blocks; the backward pass may run it again.
  template <class Block>
  at::Tensor run_block(const at::Tensor& x, Block& block) const {
    const nn::UnitRange range(block);
    return nn::recomputed_block(
        context().recompute, {x},
        [&block](const std::vector<at::Tensor>& t) { return std::vector{block.forward(t[0])}; },
        [&block] { return block.is_trained(); })[0];
  }
  /// Runs block.forward(in, sequence) in the same way. `dropout`: probability of dropout on what blocks add.
  template <class Block>
  nn::ResidualStream run_block(const nn::ResidualStream& in, const Block& block, const nn::Sequence& sequence,
                               double dropout = 0) const {
    const nn::UnitRange range(block);
    std::vector<at::Tensor> parts{in.x};
    if (in.added.defined()) parts.push_back(in.added);
    const auto run = [&block, sequence](const std::vector<at::Tensor>& t) {
      const auto [x, added, routes] = block.forward({t[0], t.size() > 1 ? t[1] : at::Tensor()}, sequence);
      std::vector<at::Tensor> out{x};
      for (const at::Tensor& part : {added, routes}) {
        if (part.defined()) out.push_back(part);
      }
      return out;
    };
    parts = nn::recomputed_block(context().recompute, parts, run, [&block] { return block.is_trained(); });
    parts.resize(3);
    const nn::ResidualStream out{parts[0], parts[1], parts[2]};
    // One tensor is then kept for the next block, not two. A dropout is left to that block, which can run it again.
    const bool adds_here = nn::is_of_blocks(context().recompute) && dropout == 0;
    return adds_here ? nn::ResidualStream{.x = out.sum(), .routes = out.routes} : out;
  }
};

class ModelCatalog final : public config::CatalogOfAbilities<Abilities, Model, const nn::Context&, const DataFacts&> {
 public:
  using CatalogOfAbilities::CatalogOfAbilities;

  /// Returns the input that the chosen model reads, before it is built: data is opened for it. A model defines it by a
  /// static function `InputSpec reads(const Spec&)`; without one it reads the first field of any data.
  InputSpec reads(const config::Choice& choice) const { return reads_.at(index_of(choice.name))(choice.options.get()); }

  template <class Derived, class Spec>
  void note(const std::string& name) {
    CatalogOfAbilities::note<Derived, Spec>(name);
    if constexpr (requires(const Spec& spec) { Derived::reads(spec); }) {
      reads_.push_back([](const void* spec) { return Derived::reads(*static_cast<const Spec*>(spec)); });
    } else {
      reads_.push_back([](const void*) { return InputSpec(); });
    }
  }

 private:
  std::vector<std::function<InputSpec(const void* spec)>> reads_;
};
ModelCatalog& catalog();

}  // namespace gputrain::models
