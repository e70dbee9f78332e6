#include "support/tape.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace gputrain::testing_support {
namespace {

// A dispatch key below autograd that LibTorch does not use itself.
constexpr auto kKey = c10::DispatchKey::Fake;

thread_local std::function<void(const c10::OperatorHandle&, torch::jit::Stack*)> note;

void on_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  note(op, stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>()); }

/// An alias with its own shape, because operators such as unsqueeze_ change their argument's shape.
c10::IValue as_it_is(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(value.toTensor().alias()) : value;
  if (!value.isTensorList()) return value;
  std::vector<at::Tensor> tensors = value.toTensorVector();
  for (at::Tensor& tensor : tensors) tensor = tensor.alias();
  return tensors;
}

void copy_where_new(const c10::IValue& to, const c10::IValue& from) {
  if (to.isTensorList()) {
    const auto kept = to.toTensorVector(), made = from.toTensorVector();
    for (size_t i = 0; i < kept.size(); ++i) copy_where_new(kept[i], made[i]);
  } else if (to.isTensor() && to.toTensor().defined() && !to.toTensor().is_alias_of(from.toTensor())) {
    to.toTensor().copy_(from.toTensor());
  }
}

}  // namespace

std::string Tape::capture(const std::function<void()>& work) {
  Graph graph;
  note = [&graph](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    Call call{op, {}, {}};
    const auto arguments = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
    std::transform(stack->end() - arguments, stack->end(), std::back_inserter(call.arguments), as_it_is);
    op.callBoxed(stack);
    if (op.hasTag(at::Tag::inplace_view)) return;
    const auto results = static_cast<std::ptrdiff_t>(op.schema().returns().size());
    std::transform(stack->end() - results, stack->end(), std::back_inserter(call.results), as_it_is);
    graph.calls.push_back(std::move(call));
  };
  {
    const c10::impl::IncludeDispatchKeyGuard from_here(kKey);
    work();
  }
  note = nullptr;
  counts_.operators += graph.calls.size();
  graphs_.push_back(std::move(graph));
  counts_.graphs = graphs_.size();
  return {};
}

void Tape::replay(size_t number) {
  Graph& graph = graphs_[number];
  ++counts_.replays;
  if (std::exchange(graph.is_fresh, false)) return;
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  for (const Call& call : graph.calls) {
    torch::jit::Stack stack = call.arguments;
    call.op.callBoxed(stack);
    for (size_t i = 0; i < call.results.size(); ++i) copy_where_new(call.results[i], stack[i]);
  }
}

}  // namespace gputrain::testing_support
