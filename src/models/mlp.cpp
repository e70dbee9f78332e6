#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/models/spec_checks.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "gputrain/ops/activation.hpp"

namespace gputrain::models {
namespace {

struct MlpSpec {
  std::vector<int64_t> hidden{256};
  std::string activation = "relu";
  double dropout = 0;
  std::optional<int64_t> num_classes;

  static void describe(config::Description<MlpSpec>& d) {
    d.summary("A multilayer perceptron on flattened inputs.");
    d.key("hidden", &MlpSpec::hidden, "outputs of each hidden layer").range(1, 1e7).aliases({"hidden_sizes"});
    d.key("activation", &MlpSpec::activation, "after each hidden layer").choices(ops::activation_names());
    d.key("dropout", &MlpSpec::dropout, "probability after each hidden layer")
        .range(0, 0.999)
        .aliases({"dropout_rate"});
    d.key("num_classes", &MlpSpec::num_classes, "classes; null: the data's").range(1, 1e8);
  }
};

class Mlp final : public Model {
 public:
  Mlp(const MlpSpec& spec, const nn::Context& context, const DataFacts& facts)
      : Model(context), activation_(ops::activation_from_name(spec.activation)) {
    int64_t in = 1;
    for (const int64_t size : facts.input_shape) in *= size;
    for (size_t i = 0; i < spec.hidden.size(); in = spec.hidden[i++]) {
      hidden_.push_back(add_child<nn::Linear>("hidden." + std::to_string(i), context,
                                              nn::Linear::Options{.in = in, .out = spec.hidden[i]}));
    }
    dropout_ = add_child<nn::Dropout>("dropout", context, spec.dropout);
    classifier_ = add_child<nn::Linear>("classifier", context,
                                        nn::Linear::Options{.in = in, .out = classes_of(spec.num_classes, facts)});
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = inputs.flatten(1);
    for (const nn::Linear* layer : hidden_) {
      const nn::UnitRange range(*layer);
      x = dropout_->forward(ops::activate(layer->forward(x), activation_));
    }
    const nn::UnitRange range(*classifier_);
    return classifier_->forward(x);
  }

  bool takes_any_size() const override { return false; }

  static Abilities abilities() { return {.announces_units = true}; }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (size_t i = 0; i < hidden_.size(); ++i) units.push_back({"hidden." + std::to_string(i), {hidden_[i]}});
    units.push_back({"head", {classifier_}});
    return units;
  }

 private:
  ops::Activation activation_;
  std::vector<nn::Linear*> hidden_;
  nn::Dropout* dropout_;
  nn::Linear* classifier_;
};

const config::Registered<Mlp, MlpSpec> registered_mlp{catalog(), "mlp", "multilayer perceptron"};

}  // namespace
}  // namespace gputrain::models
