#include "recorder.hpp"

#include <memory>
#include <unordered_map>
#include <utility>

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app::onnx {
namespace {

class Recording;
thread_local Recording* current = nullptr;

/// Operator that is running.
struct RunningCall final : at::ObserverContext {
  RecordedCall call;
  bool is_outermost = false;
};

class Recording {
 public:
  std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const auto schema = function.operator_schema();
    if (!schema) return nullptr;
    auto running = std::make_unique<RunningCall>();
    running->is_outermost = depth_++ == 0;
    if (!running->is_outermost) return running;
    RecordedCall& call = running->call;
    call.name = schema->name();
    for (const auto& argument : schema->arguments()) call.argument_names.push_back(argument.name());
    call.inputs.assign(function.inputs().begin(), function.inputs().end());
    for (const auto& input : call.inputs)
      for (const at::Tensor& tensor : tensors_in(input)) check(tensor, call.name);
    return running;
  }

  void end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* const running = static_cast<RunningCall*>(context);
    if (running == nullptr) return;
    --depth_;
    if (!running->is_outermost) return;
    RecordedCall& call = running->call;
    call.outputs = function.outputs();
    for (const auto& output : call.outputs) {
      for (const at::Tensor& tensor : tensors_in(output)) {
        const uint32_t version = tensor.defined() ? static_cast<uint32_t>(tensor._version()) : 0;
        call.output_versions.push_back(version);
        if (tensor.defined()) versions_[tensor.unsafeGetTensorImpl()] = version;
      }
    }
    calls_.push_back(std::move(call));
  }

  std::vector<RecordedCall> take() {
    GPUTRAIN_ASSERT(mistake_.empty(), mistake_);
    return std::move(calls_);
  }

 private:
  // Notes a mistake instead of throwing: LibTorch would turn an exception into a warning.
  void check(const at::Tensor& tensor, const std::string& reader) {
    if (!tensor.defined()) return;
    const auto known = versions_.find(tensor.unsafeGetTensorImpl());
    if (known == versions_.end() || known->second == static_cast<uint32_t>(tensor._version())) return;
    mistake_ = reader + " reads a tensor that was written over through another one";
  }

  int depth_ = 0;
  std::vector<RecordedCall> calls_;
  std::unordered_map<const c10::TensorImpl*, uint32_t> versions_;  // after the call that returned the tensor
  std::string mistake_;
};

class Listening {
 public:
  explicit Listening(Recording& recording) {
    current = &recording;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) { return current->begin(function); },
            [](const at::RecordFunction& function, at::ObserverContext* context) { current->end(function, context); })
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() {
    at::removeCallback(handle_);
    current = nullptr;
  }

 private:
  at::CallbackHandle handle_;
};

}  // namespace

std::vector<RecordedCall> record(const std::function<void()>& pass) {
  Recording recording;
  {
    const Listening listening(recording);
    pass();
  }
  return recording.take();
}

std::vector<at::Tensor> tensors_in(const at::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  if (!value.isList()) return {};
  std::vector<at::Tensor> tensors;
  for (const at::IValue& one : value.toListRef()) {
    if (!one.isTensor() && !one.isNone()) return {};
    tensors.push_back(one.isTensor() ? one.toTensor() : at::Tensor());
  }
  return tensors;
}

}  // namespace gputrain::app::onnx
