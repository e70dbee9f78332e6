// A model turns a batch into features and says which layer makes logits of them; a task says what they are for. One
// architecture per file in src/models.
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

/// What the data says about a model's inputs and outputs; it fills options that are null in the job.
struct DataFacts {
  std::vector<int64_t> input_shape;  // one sample: [channels, height, width], [time], or the dataset's own sizes
  int64_t longest_text = 0;          // tokens, where the job limits them; 0: as long as the samples
  int64_t num_classes = 0;           // classes, or vocabulary size
  int64_t vocabulary = 0;            // tokens are numbers below this; 0: the inputs are no tokens
  std::vector<std::string> class_names = {};  // in order of their numbers; empty: they have none
};

/// A part of the model whose parameters are stored together: stem, each block, head. The arena keeps the order of this
/// list, and a gradient bucket consists of neighbours.
struct Unit {
  std::string name;                  // "stem", "layer1.0", "h.3", "head"
  std::vector<nn::Module*> modules;  // owned by the model
};

/// What a model can do, and what of it hinders others, as its spec says before it is built.
struct Abilities {
  /// Forward passes say by nn::UnitRange which unit computes: ranks that share out the weights gather those of that
  /// unit. Whatever reads weights of another unit says nn::borrow_weights().
  bool announces_units = false;
  bool takes_parts_of_texts = false;  // last_layer() takes a batch with Batch::is_part_of_texts
  /// Ranks share its layers if nn::Context::tensor_group is set. Its constructor throws Error(usage) for numbers of
  /// ranks that cannot.
  bool splits_layers = false;
  /// It can run in parts (pipeline parallelism): it has flops_of_units() and the three functions behind it, and
  /// last_layer() takes a batch with Batch::hidden.
  bool runs_in_parts = false;
  bool recomputes_blocks = false, recomputes_selectively = false;  // as nn::Context::recompute asks
  bool ties_ends = false;                                          // it has shared_by_ends()
  bool drops_out = false;                                          // it has dropout
  bool norms_across_heads = false;
  bool has_router_losses = false;

  bool recomputes(nn::Recompute how) const noexcept {
    return how == nn::Recompute::block ? recomputes_blocks : how == nn::Recompute::selective && recomputes_selectively;
  }
};

class Model : public nn::Module {
 public:
  using nn::Module::Module;
  ~Model() override;

  /// Logits [batch, classes], [batch, time, vocabulary] or, of pixels, [batch, height, width, classes] for the first
  /// field of a batch. Any ATen operators may be used. In 16 bits, ops/ and the layers of nn/ cast by context().policy,
  /// and ATen's operators compute in fp32.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  /// The units in execution order; each parameter belongs to exactly one. `{{"all", {this}}}` is enough. The last
  /// module of the last unit is the layer that gives the classes: pretrained weights may have other classes.
  virtual std::vector<Unit> units() = 0;

  /// Modules that serve one purpose of several that the model may have. Weights that were trained for another purpose
  /// may lack all of a module's parameters, which then keep their values.
  virtual std::vector<nn::Module*> head_parts() { return {}; }

  /// The output of the model before its last layer, and that layer.
  struct LastLayer {
    at::Tensor features;
    ops::Head head;
    int64_t classes = 0;         // columns that are classes
    at::Tensor extra_loss = {};  // 0-dim: added to the mean loss of the batch in training; undefined: nothing
  };
  /// What tasks compute losses and metrics from. Override it if logits are large or have more columns than classes, or
  /// if the model reads more than the batch's first field. By default the features are the logits of `forward`. The
  /// loss may write over the features.
  virtual LastLayer last_layer(const Batch& batch);

  /// Tokens that a language model reads after others.
  struct NextTokens {
    at::Tensor tokens;       // int64 [batch, time]
    at::Tensor positions;    // int64 [batch, time]: the place of each in its own text
    bool is_padded = false;  // rows begin with padding, whose positions are 0 as that of a text's first token
    at::Tensor begins = {};  // int64 [batch]: where the text of each row begins in memory; undefined: not asked for
    /// int64 [1]: where one token of each text stands in memory that has room for it (nn::KeyValues::reserve()), whose
    /// sizes then do not change. Undefined: behind all others.
    at::Tensor place = {};
  };
  /// What it keeps of the tokens that it has read, by layer; empty: it has read none.
  using Memory = std::vector<nn::KeyValues>;

  /// What a model that offers next_logits() reads: tokens below `vocabulary`, at most `length` in a text.
  struct TextLimits {
    int64_t vocabulary = 0, length = 0;
  };
  /// Empty: the model does not offer next_logits().
  virtual std::optional<TextLimits> text_limits() const { return std::nullopt; }
  /// Logits [batch, vocabulary] after the last of the tokens, which it adds to `earlier`. With `place`, which needs
  /// `begins`, it calls the same operators for every token: a pass may be recorded. Call it in evaluation mode
  /// and without gradients. Throws Error(usage) where the model does not offer it.
  virtual at::Tensor next_logits(const NextTokens& next, Memory& earlier);

  /// Floating-point operations per sample of each unit, in order.
  virtual std::vector<double> flops_of_units() const { return {}; }
  /// Runs the units from Batch::first_unit to before `end`, which is not the last one. Returns what unit `end` reads.
  virtual at::Tensor run_units(const Batch& batch, int64_t end);
  /// Memory for what run_units() returns, from any unit to any other.
  virtual at::Tensor empty_hidden(const Batch& batch) const;
  /// A parameter of the first unit that the last one reads too; undefined: there is none.
  virtual at::Tensor shared_by_ends() const { return {}; }

  /// Whether images in evaluation may have another size than in training.
  virtual bool takes_any_size() const { return true; }

  /// Floating-point operations per sample, forward and backward (6 N D rule, refined by the model); 0: unknown.
  virtual double flops_per_sample() const { return 0; }

 protected:
  /// block.forward(x), for a block of a model that recomputes_blocks; the backward pass may run it again.
  template <class Block>
  at::Tensor run_block(const at::Tensor& x, Block& block) const {
    const nn::UnitRange range(block);
    return nn::recomputed_block(
        context().recompute, {x},
        [&block](const std::vector<at::Tensor>& t) { return std::vector{block.forward(t[0])}; },
        [&block] { return block.is_trained(); })[0];
  }
  /// block.forward(in, sequence), in the same way. `dropout`: its probability on what blocks add.
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
    // The next block then keeps one tensor, not two. A dropout is left to that block, which can run it again.
    const bool adds_here = context().recompute == nn::Recompute::block && dropout == 0;
    return adds_here ? nn::ResidualStream{.x = out.sum(), .routes = out.routes} : out;
  }
};

class ModelCatalog final : public config::CatalogOfAbilities<Abilities, Model, const nn::Context&, const DataFacts&> {
 public:
  using CatalogOfAbilities::CatalogOfAbilities;

  /// What the chosen model reads, before it is built: data is opened for it. A model says so by a static function
  /// `InputSpec reads(const Spec&)`; without one it reads the first field of any data.
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
