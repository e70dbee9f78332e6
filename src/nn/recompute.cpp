#include "gputrain/nn/recompute.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "gputrain/core/error.hpp"
#include "gputrain/device/offload.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/nn/unit_memory.hpp"

namespace gputrain::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

thread_local bool recomputing = false;

/// Random states at the start of a block: the CPU's and, for a block on a GPU, that GPU's. While a stream is captured
/// there are none, and blocks must not draw.
class RandomStates {
 public:
  explicit RandomStates(at::Device device) : device_(device) {
    if (device::is_capturing(device)) return;
    host_ = device::generator_state(at::kCPU);
    if (!device.is_cpu()) gpu_ = device::generator_state(device);
  }
  void set() const {
    if (host_.defined()) device::set_generator_state(at::kCPU, host_);
    if (gpu_.defined()) device::set_generator_state(device_, gpu_);
  }
  bool are_present() const {
    return is_equal(host_, device::generator_state(at::kCPU)) &&
           (!gpu_.defined() || is_equal(gpu_, device::generator_state(device_)));
  }

 private:
  /// Compares states, which are bytes on the CPU.
  static bool is_equal(const at::Tensor& one, const at::Tensor& other) {
    return one.nbytes() == other.nbytes() &&
           std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
  }

  at::Device device_;
  at::Tensor host_, gpu_;
};

// Whether any block has drawn random numbers, which shows in the passes before the first capture.
std::atomic<bool> blocks_draw = false;

void note_draws(const RandomStates& before, at::Device device) {
  if (!device::is_capturing(device)) {
    if (!blocks_draw && !before.are_present()) blocks_draw = true;
  } else if (blocks_draw) {
    throw std::runtime_error("recomputed blocks draw random numbers, such as dropout's, and set random states");
  }
}

/// Scope of a block's second run: uses the random states of the first run, then restores the present ones.
class SecondRun {
 public:
  SecondRun(const RandomStates& first, at::Device device) : present_(device) {
    first.set();
    recomputing = true;
  }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;
  ~SecondRun() {
    recomputing = false;
    present_.set();
  }

 private:
  RandomStates present_;
};

/// A unit whose weights are read; null: they have memory all the time.
struct UnitOfWeights {
  UnitMemory* memory = nullptr;
  int64_t number = -1;

  static UnitOfWeights entered() {
    UnitMemory* const memory = entered_memory();
    return {memory, memory != nullptr ? memory->current() : -1};
  }
  static UnitOfWeights of(const at::Tensor& tensor) {
    UnitMemory* const memory = tensor.has_storage() ? entered_memory() : nullptr;
    return {memory, memory != nullptr ? memory->unit_of(tensor.storage().unsafeGetStorageImpl()) : -1};
  }
  void need() const {
    if (number >= 0) memory->need(number);
  }
};

/// Inputs of a block that wait in the host's memory. The newest ones stay on the device until the next block begins:
/// the backward pass may begin with them.
class OffloadedInputs {
 public:
  /// Begins to copy the inputs of a block that begins now.
  static std::shared_ptr<OffloadedInputs> of(at::TensorList inputs) {
    thread_local std::weak_ptr<OffloadedInputs> newest;
    auto made = std::make_shared<OffloadedInputs>();
    made->before_ = newest;
    if (const auto before = newest.lock()) {
      for (const auto& tensor : before->tensors_) tensor->leave_device();
    }
    for (const at::Tensor& input : inputs) made->tensors_.push_back(std::make_unique<device::OffloadedTensor>(input));
    newest = made;
    return made;
  }

  /// Returns the inputs, and begins to copy those of the block before, whose backward pass is next.
  variable_list take() {
    variable_list inputs;
    for (const auto& tensor : tensors_) inputs.push_back(tensor->take());
    if (const auto before = before_.lock()) {
      for (const auto& tensor : before->tensors_) tensor->fetch();
    }
    return inputs;
  }

 private:
  std::vector<std::unique_ptr<device::OffloadedTensor>> tensors_;
  std::weak_ptr<OffloadedInputs> before_;
};

struct FirstRun final : torch::CustomClassHolder {
  FirstRun(Block to_run, at::Device device)
      : block(std::move(to_run)), random(device), unit(UnitOfWeights::entered()) {}
  Block block;
  RandomStates random;
  UnitOfWeights unit;
  std::shared_ptr<OffloadedInputs> offloaded;  // null: autograd saves the inputs
};

struct RecomputedBlock : torch::autograd::Function<RecomputedBlock> {
  /// Runs the block and records it as one operator. `anchor` puts it on the graph if no input does.
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const std::optional<at::Tensor>&,
                               const Block& block, bool offloads) {
    auto run = c10::make_intrusive<FirstRun>(block, inputs[0].device());
    if (offloads) {
      run->offloaded = OffloadedInputs::of(inputs);
    } else {
      context->save_for_backward(inputs.vec());
    }
    variable_list outputs = block(inputs.vec());
    note_draws(run->random, inputs[0].device());
    context->saved_data["run"] = c10::IValue::make_capsule(std::move(run));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "a recomputed block has no second derivative");
    const auto run = c10::static_intrusive_pointer_cast<FirstRun>(context->saved_data["run"].toCapsule());
    variable_list inputs = run->offloaded ? run->offloaded->take() : context->get_saved_variables(), outputs, results;
    variable_list in_other_order(inputs.size());  // gradients that do not lie in memory as the inputs do
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = inputs[i].detach().set_requires_grad(context->needs_input_grad(i));
      if (!inputs[i].requires_grad()) continue;
      inputs[i].register_hook([&in_other_order, i, strides = inputs[i].strides().vec()](const at::Tensor& gradient) {
        if (gradient.strides() != at::IntArrayRef(strides)) in_other_order[i] = gradient;
      });
    }
    run->unit.need();
    {
      const EnteredAgain entered(run->unit.memory);
      const SecondRun second(run->random, inputs[0].device());
      const at::AutoGradMode with_graph(true);
      outputs = run->block(inputs);
    }
    variable_list learning, their_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      learning.push_back(outputs[i]);
      their_gradients.push_back(gradients[i]);
    }
    torch::autograd::backward(learning, their_gradients);
    // `.grad` lies as its input. The block before would sum over that in another order than without recomputation.
    for (size_t i = 0; i < inputs.size(); ++i)
      results.push_back(in_other_order[i].defined() ? in_other_order[i] : inputs[i].grad());
    results.resize(results.size() + 3);  // no gradients for `anchor`, `block` and `offloads`
    return results;
  }
};

/// The way to recompute a tensor, valid as long as that tensor lives.
struct Recipe {
  c10::weak_intrusive_ptr<c10::StorageImpl> made;
  std::shared_ptr<const std::function<at::Tensor()>> make;
  UnitOfWeights unit;
};

thread_local std::vector<Recipe> recipes;  // those of this forward pass; few tensors are alive at a time

const Recipe* recipe_for(const at::Tensor& tensor) {
  for (const Recipe& recipe : recipes) {
    if (!recipe.made.expired() && recipe.made._unsafe_get_target() == tensor.storage().unsafeGetStorageImpl()) {
      return &recipe;
    }
  }
  return nullptr;
}

/// Saves a tensor's recipe if it has one, else the tensor; of shared-out weights also their unit.
class RecipeInstead final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    const Recipe* recipe = tensor.has_storage() ? recipe_for(tensor) : nullptr;
    if (recipe == nullptr) {
      tensor_ = tensor.detach();  // a saved result would hold its own graph
      unit_ = UnitOfWeights::of(tensor);
      return;
    }
    make_ = recipe->make;
    unit_ = recipe->unit;
    sizes_ = tensor.sizes().vec();
    strides_ = tensor.strides().vec();
    offset_ = tensor.storage_offset();
  }

  at::Tensor call_unpack_hook() override {
    unit_.need();
    if (make_ == nullptr) return tensor_;
    const at::NoGradGuard no_grad;
    return at::as_strided((*make_)(), sizes_, strides_, offset_);
  }

 private:
  at::Tensor tensor_;
  std::shared_ptr<const std::function<at::Tensor()>> make_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
  UnitOfWeights unit_;  // whose weights the tensor lies in, or the recipe reads
};

/// Autograd asks the engine how to save tensors.
class Engine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return recipes.empty() && entered_memory() == nullptr ? nullptr : std::make_unique<RecipeInstead>();
  }
};

torch::autograd::Engine& engine() {
  static auto* const one = new Engine;  // not destroyed: its threads may outlive main()
  return *one;
}

// Set at program start: LibTorch starts the GPU threads once, for the engine of the first backward pass, and any other
// engine fails on a GPU.
[[maybe_unused]] const bool is_installed = (torch::autograd::set_default_engine_stub(engine), true);

void remember(const at::Tensor& made, std::function<at::Tensor()> make) {
  std::erase_if(recipes, [](const Recipe& recipe) { return recipe.made.expired(); });
  const auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(made.storage().unsafeGetStorageImpl());
  recipes.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(storage),
                     std::make_shared<const std::function<at::Tensor()>>(std::move(make)), UnitOfWeights::entered()});
}

}  // namespace

Recompute recompute_from_name(std::string_view name, bool offloads) {
  if (name == "selective") return Recompute::selective;
  if (name != "block") return Recompute::none;
  return offloads ? Recompute::offloaded_block : Recompute::block;
}

bool is_recomputing() noexcept { return recomputing; }

std::vector<at::Tensor> recomputed_block(Recompute how, const std::vector<at::Tensor>& inputs, const Block& block,
                                         const std::function<bool()>& is_trained) {
  if (!is_of_blocks(how) || !at::GradMode::is_enabled()) return block(inputs);
  std::optional<at::Tensor> anchor;
  if (std::none_of(inputs.begin(), inputs.end(), [](const at::Tensor& x) { return x.requires_grad(); })) {
    if (!is_trained || !is_trained()) return block(inputs);
    anchor = at::empty({0}, inputs[0].options().dtype(at::kFloat)).set_requires_grad(true);
  }
  return RecomputedBlock::apply(at::TensorList(inputs), anchor, block, how == Recompute::offloaded_block);
}

ForwardPass::~ForwardPass() { recipes.clear(); }

at::Tensor recomputed_value(Recompute how,
                            const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& compute,
                            const at::Tensor& a, const at::Tensor& b) {
  at::Tensor y = compute(a, b);
  if (how != Recompute::selective || !at::GradMode::is_enabled() || !y.requires_grad()) return y;
  remember(y, [compute, a = a.detach(), b = b.defined() ? b.detach() : b] { return compute(a, b); });
  return y;
}

}  // namespace gputrain::nn
