// The base of every layer and model: named parameters, buffers and children, without torch/nn.
//
// A module registers its parameters with a shape and an initializer; the tensors are allocated but not filled. The
// arena then moves them into flat buffers, and `initialize` or a weights file fills them in place. Tensors keep their
// identity for life (only their storage moves), so a layer may hold on to them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/role.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/ops/precision.hpp"

namespace gputrain::comm {
class Group;
}

namespace gputrain::nn {

/// What every layer is told when it is built.
struct Context {
  ops::Policy policy;
  at::Device device = at::kCPU;
  bool channels_last = false;  // 4-D weights and activations in NHWC memory order
  Recompute recompute = Recompute::none;
  int64_t logits_bytes = int64_t{2} << 30;  // of a head at a time; more are computed and differentiated in parts
  comm::Group* batch_group = nullptr;       // whose batches are one to batch norm in training; null: each rank's own is
};

/// Initial values, each element a function of (seed, full parameter name, index) alone.
struct Init {
  enum class Kind { zeros, ones, normal, uniform, as_given };
  Kind kind = Kind::zeros;
  double scale = 0;  // normal: standard deviation; uniform: values in [-scale, scale)

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double standard_deviation) { return {Kind::normal, standard_deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init as_given() { return {Kind::as_given, 0}; }  // of a buffer that has its values when it is registered
};

using Role = device::Role;

/// The type that a layer reads a parameter in: the master type, or the policy's compute type through ops::operand().
enum class ReadAs { master, compute };

struct Parameter {
  std::string name;  // within its module, without dots
  at::Tensor value;  // requires grad if trainable
  Init init;
  Role role;
  ReadAs read_as;
  bool trainable = true;  // see freeze()

  /// Makes it a constant: no gradient from now on. Call before the arena is built.
  void freeze();
};

/// What is no parameter and saved with them all the same.
struct Buffer {
  std::string name;
  at::Tensor value;
  Init init;
};

class Module {
 public:
  explicit Module(const Context& context) : context_(context) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  /// Calls `visit` with the full dotted name of each parameter, own ones before those of children, in order of
  /// registration.
  void each_parameter(const std::function<void(const std::string& name, Parameter&)>& visit);
  void each_buffer(const std::function<void(const std::string& name, Buffer&)>& visit);
  void each_module(const std::function<void(const std::string& name, Module&)>& visit);  // this one first, name ""

  /// Training or evaluation behaviour (dropout, batch norm), here and in all children.
  void train(bool on = true);
  bool is_training() const noexcept { return training_; }

  const Context& context() const noexcept { return context_; }

 protected:
  /// `read_as` compute: the layer casts the parameter itself, so that a frozen one is kept in that type alone.
  at::Tensor register_parameter(std::string name, at::IntArrayRef sizes, Init init, Role role,
                                ReadAs read_as = ReadAs::master);
  /// Unless `init` is Init::as_given(), `initialize` writes over what `value` holds.
  at::Tensor register_buffer(std::string name, at::Tensor value, Init init);

  /// Builds a child owned by this module: `conv1_(*add_child<Conv2d>("conv1", context, ...))`.
  template <class Child, class... Arguments>
  Child* add_child(std::string name, Arguments&&... arguments) {
    auto child = std::make_unique<Child>(std::forward<Arguments>(arguments)...);
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
};

/// Fills every parameter and buffer in place, from (seed, name, element index) only: independent of device, layout,
/// thread count and of the other parameters.
void initialize(Module& module, uint64_t seed);

}  // namespace gputrain::nn
