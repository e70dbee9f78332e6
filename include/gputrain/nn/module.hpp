// Base of every layer and model: named parameters, buffers and children, without torch/nn.
//
// A module registers parameters with a shape and an initializer; their tensors are allocated but not filled. The arena
// then moves them into flat buffers, and `initialize` or a weights file fills them in place. A tensor stays the same
// object (only its storage moves), so that layers may keep a handle to it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/role.hpp"
#include "gputrain/device/split.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::comm {
class Group;
}

namespace gputrain::nn {

/// Settings that every layer receives at construction.
struct Context {
  ops::Policy policy;
  at::Device device = at::kCPU;
  bool channels_last = false;  // 4-D weights and activations in NHWC memory order
  Recompute recompute = Recompute::none;
  int64_t logits_bytes = int64_t{2} << 30;  // limit for a head's logits; larger ones are computed in parts
  bool takes_no_memory = false;             // parameters have none until somebody gives it to them
  comm::Group* batch_group = nullptr;       // batch norm treats its ranks' batches as one; null: each rank's own
  comm::Group* tensor_group = nullptr;      // ranks that share the layers which say so; null: this rank has all layers
  comm::Group* context_group = nullptr;     // ranks that share a batch whose Batch::is_part_of_texts is set
};

/// Initial values. Each element depends only on (seed, full parameter name, index).
struct Init {
  enum class Kind { zeros, ones, constant, normal, uniform, as_given };
  Kind kind = Kind::zeros;
  double scale = 0;  // constant: the value; normal: standard deviation; uniform: values in [-scale, scale)

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double standard_deviation) { return {Kind::normal, standard_deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init as_given() { return {Kind::as_given, 0}; }  // a buffer that is filled before registration
};

/// Kind of a parameter, for `optimizer.no_decay: [bias, norm]`.
using ParameterRole = device::Role;

/// The type that a layer reads a parameter in: the master type, or the policy's compute type through ops::operand().
enum class ReadAs { master, compute };

struct Parameter {
  std::string name;  // within its module, without dots
  at::Tensor value;  // requires grad if trainable
  Init init;
  ParameterRole role;
  ReadAs read_as;
  bool trainable = true;                    // see freeze()
  std::optional<device::Split> split = {};  // how ranks share it, if they do: `value` is then this rank's part

  /// Makes it a constant: no gradient from now on. Call before the arena is built.
  void freeze();
};

/// A tensor that is not a parameter but is saved with the parameters.
struct Buffer {
  std::string name;
  at::Tensor value;
  Init init;
};

class UnitMemory;

class Module {
 public:
  explicit Module(const Context& context) : context_(context) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  /// Calls `visit` with the full dotted name of each parameter, in order of registration: a module's own parameters
  /// first, then those of its children.
  void each_parameter(const std::function<void(const std::string& name, Parameter&)>& visit);
  void each_buffer(const std::function<void(const std::string& name, Buffer&)>& visit);
  void each_module(const std::function<void(const std::string& name, Module&)>& visit);  // this module first, name ""

  /// Returns whether any parameter of it or its children is trainable.
  bool is_trained() const;

  /// Sets training or evaluation mode (dropout, batch norm) in this module and all children.
  void train(bool on = true);
  bool is_training() const noexcept { return training_; }

  const Context& context() const noexcept { return context_; }

  /// Who gives weights memory while their unit computes, of a model and the modules of its units; null: they have it
  /// all the time.
  UnitMemory* unit_memory() const noexcept { return unit_memory_; }
  void set_unit_memory(UnitMemory* memory) noexcept { unit_memory_ = memory; }

 protected:
  /// Registers a parameter. `read_as` compute: the layer casts the parameter itself, so a frozen one is kept in that
  /// type alone. `sizes` are those of the whole parameter, also if ranks share it.
  at::Tensor register_parameter(std::string name, at::IntArrayRef sizes, Init init, ParameterRole role,
                                ReadAs read_as = ReadAs::master, std::optional<device::Split> split = {});
  /// Replaces parameters, which are frozen from now on, by frozen tensors, whose values the caller sets.
  void replace_parameters(const std::vector<std::string>& names,
                          const std::vector<std::pair<std::string, at::Tensor>>& frozen);
  /// Registers a buffer. `initialize` overwrites `value`, unless `init` is Init::as_given().
  at::Tensor register_buffer(std::string name, at::Tensor value, Init init);

  /// Builds a child owned by this module: `conv1_(*add_child<Conv2d>("conv1", context, ...))`. A child without a name
  /// is no level of its own: its parameters and children are named as if they were this module's.
  template <class Child, class... Arguments>
  Child* add_child(std::string name, Arguments&&... arguments) {
    return adopt(std::move(name), std::make_unique<Child>(std::forward<Arguments>(arguments)...));
  }
  /// Adopts in the same way a child that is built already.
  template <class Child>
  Child* adopt(std::string name, std::unique_ptr<Child> child) {
    Child* raw = child.get();
    adopt_child(std::move(name), std::move(child));
    return raw;
  }

 private:
  void adopt_child(std::string name, std::unique_ptr<Module> child);

  Context context_;
  std::deque<Parameter> parameters_;
  std::deque<Buffer> buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  bool training_ = true;
  UnitMemory* unit_memory_ = nullptr;
};

/// Fills every parameter that has memory and every buffer in place. Values depend only on (seed, name, element index),
/// not on device, layout, thread count or other parameters.
void initialize(Module& module, uint64_t seed);

}  // namespace gputrain::nn
