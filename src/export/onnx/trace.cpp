#include "trace.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "gputrain/core/error.hpp"
#include "gputrain/ops/recorded.hpp"
#include "recorder.hpp"

namespace gputrain::app::onnx {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ExitCode::usage, {.what = what, .where = "--format onnx"});
}

struct RecordedPass {
  std::vector<at::Tensor> inputs;
  std::vector<RecordedCall> calls;
  at::Tensor output;
};

RecordedPass recorded_pass(const TracedModel& model, const Extent& extent) {
  const at::NoGradGuard no_grad;
  const ops::RecordedScope scope;
  RecordedPass pass{.inputs = model.inputs(extent), .calls = {}, .output = {}};
  pass.calls = record([&] { pass.output = model.pass(pass.inputs); });
  return pass;
}

/// Turns "aten::add_" into "add".
std::string plain_name(std::string name) {
  if (name.starts_with("aten::")) name = name.substr(6);
  if (name.ends_with('_')) name.pop_back();
  return name;
}

/// Comparison of the passes, call by call.
class Comparison {
  using Tensors = std::vector<at::Tensor>;

  template <class Function>
  auto each(const Function& function) const {
    std::vector<decltype(function(passes_[0]))> all;
    for (const RecordedPass& pass : passes_) all.push_back(function(pass));
    return all;
  }

 public:
  Comparison(const TracedModel& model) : extents_(model.extents) {
    for (const Extent& extent : extents_) passes_.push_back(recorded_pass(model, extent));
    numbers_.resize(passes_.size());
    for (const RecordedPass& pass : passes_)
      if (pass.calls.size() != passes_[0].calls.size())
        refuse("the model calls " + std::to_string(pass.calls.size()) +
               " operators where another number of samples or "
               "tokens needs " +
               std::to_string(passes_[0].calls.size()));
  }

  Trace compare() {
    for (size_t i = 0; i < passes_[0].inputs.size(); ++i)
      trace_.inputs.push_back(add(each([&](const RecordedPass& pass) { return pass.inputs[i]; }), {}));
    for (size_t i = 0; i < passes_[0].calls.size(); ++i) compare_call(i);
    trace_.output = number_of(each([](const RecordedPass& pass) { return pass.output; }), "the end");
    leave_out_unused();
    return std::move(trace_);
  }

 private:
  Size fitted(const std::vector<int64_t>& values, const std::string& call) const {
    if (const auto size = size_of(values, extents_)) return *size;
    refuse(call + " has a number that is no multiple of the number of samples or tokens");
  }

  std::vector<Size> sizes_of(const Tensors& tensors, const std::string& call) const {
    std::vector<Size> sizes;
    for (int64_t dim = 0; dim < tensors[0].dim(); ++dim) {
      std::vector<int64_t> values;
      for (const at::Tensor& tensor : tensors) {
        if (tensor.dim() != tensors[0].dim()) refuse(call + " has another number of dimensions for other lengths");
        values.push_back(tensor.size(dim));
      }
      sizes.push_back(fitted(values, call));
    }
    return sizes;
  }

  /// Adds a value: a result of a call, or an input.
  int add(const Tensors& tensors, const std::string& call) {
    const int number = static_cast<int>(trace_.values.size());
    trace_.values.push_back({.type = tensors[0].scalar_type(), .sizes = sizes_of(tensors, call)});
    for (size_t i = 0; i < tensors.size(); ++i) numbers_[i][tensors[i].unsafeGetTensorImpl()] = number;
    return number;
  }

  /// Returns the number of a value that a call reads; a tensor that no call has returned is a constant.
  int number_of(const Tensors& tensors, const std::string& call) {
    if (!tensors[0].defined()) return -1;
    std::set<int> found;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto known = numbers_[i].find(tensors[i].unsafeGetTensorImpl());
      found.insert(known == numbers_[i].end() ? -1 : known->second);
    }
    if (found.size() > 1) refuse(call + " reads another value for other numbers of samples or tokens");
    if (*found.begin() >= 0) return *found.begin();
    for (const at::Tensor& tensor : tensors)
      if (!tensor.is_same(tensors[0]) && !(tensor.sizes() == tensors[0].sizes() && tensor.equal(tensors[0])))
        refuse(call + " reads a tensor that no operator has returned, and that differs between the samples");
    const int number = add(tensors, call);
    trace_.values.back().constant = tensors[0];
    return number;
  }

  void compare_numbers(const std::vector<at::IValue>& values, Argument& argument, const std::string& call) const {
    const bool is_list = values[0].isIntList();
    const auto numbers_in = [&](const at::IValue& value) {
      return is_list ? value.toIntVector() : std::vector{value.toInt()};
    };
    const size_t count = numbers_in(values[0]).size();
    for (size_t i = 0; i < count; ++i) {
      std::vector<int64_t> numbers;
      for (const at::IValue& value : values) {
        if (value.tagKind() != values[0].tagKind() || numbers_in(value).size() != count)
          refuse(call + " is called in another way for other numbers of samples or tokens");
        numbers.push_back(numbers_in(value)[i]);
      }
      argument.numbers.push_back(fitted(numbers, call));
    }
  }

  Argument compare_argument(size_t call, size_t place, const std::string& name) {
    const auto values = each([&](const RecordedPass& pass) { return pass.calls[call].inputs[place]; });
    Argument argument{
        .name = passes_[0].calls[call].argument_names[place], .value = values[0], .numbers = {}, .values = {}};
    const auto lists = each([&](const RecordedPass& pass) { return tensors_in(pass.calls[call].inputs[place]); });
    for (size_t i = 0; i < lists[0].size(); ++i) {
      Tensors tensors;
      for (const Tensors& list : lists) {
        if (list.size() != lists[0].size()) refuse(name + " reads more tensors for other numbers of samples or tokens");
        tensors.push_back(list[i]);
      }
      argument.values.push_back(number_of(tensors, name));
    }
    if (values[0].isInt() || values[0].isIntList()) compare_numbers(values, argument, name);
    for (const at::IValue& value : values)
      if (value.isDouble() && value.toDouble() != values[0].toDouble())
        refuse(name + " has a number that depends on the number of samples or tokens and is not whole");
    return argument;
  }

  /// Returns whether the results are the same in every pass. Overwritten results do not count: their values are gone.
  bool is_constant(const Call& call, const RecordedCall& recorded) const {
    for (const Argument& argument : call.arguments) {
      for (const int number : argument.values)
        if (number >= 0 && !trace_.values[static_cast<size_t>(number)].constant.defined()) return false;
      if (std::ranges::any_of(argument.numbers, [](const Size& size) { return !size.is_constant(); })) return false;
    }
    size_t place = 0;
    for (const at::IValue& output : recorded.outputs)
      for (const at::Tensor& tensor : tensors_in(output))
        if (static_cast<uint32_t>(tensor._version()) != recorded.output_versions[place++]) return false;
    return true;
  }

  void compare_call(size_t i) {
    const RecordedCall& first = passes_[0].calls[i];
    for (const RecordedPass& pass : passes_)
      if (pass.calls[i].name != first.name)
        refuse("the model calls " + pass.calls[i].name + " where another number of samples or tokens needs " +
               first.name);
    Call call{.name = plain_name(first.name), .arguments = {}, .results = {}};
    for (size_t place = 0; place < first.inputs.size(); ++place)
      call.arguments.push_back(compare_argument(i, place, first.name));
    const bool is_constant_here = is_constant(call, first);
    for (size_t output = 0; output < first.outputs.size(); ++output) {
      const auto lists = each([&](const RecordedPass& pass) { return tensors_in(pass.calls[i].outputs[output]); });
      if (lists[0].empty() && !is_constant_here)
        refuse("the model reads a value (" + first.name + ") to decide what to do");
      for (size_t place = 0; place < lists[0].size(); ++place) {
        Tensors tensors;
        for (const Tensors& list : lists) tensors.push_back(list.at(place));
        call.results.push_back(add(tensors, first.name));
        if (is_constant_here) trace_.values.back().constant = tensors[0];
      }
    }
    if (!is_constant_here) trace_.calls.push_back(std::move(call));
  }

  void leave_out_unused() {
    std::set<int> needed{trace_.output};
    std::vector<Call> calls;
    for (auto call = trace_.calls.rbegin(); call != trace_.calls.rend(); ++call) {
      if (std::ranges::none_of(call->results, [&](int result) { return needed.contains(result); })) continue;
      for (const Argument& argument : call->arguments) needed.insert(argument.values.begin(), argument.values.end());
      calls.push_back(std::move(*call));
    }
    std::ranges::reverse(calls);
    trace_.calls = std::move(calls);
    for (int& input : trace_.inputs)
      if (!needed.contains(input)) input = -1;
  }

  std::vector<Extent> extents_;
  std::vector<RecordedPass> passes_;
  std::vector<std::unordered_map<const c10::TensorImpl*, int>> numbers_;  // numbers of the tensors in each pass
  Trace trace_;
};

}  // namespace

Trace trace_of(const TracedModel& model) { return Comparison(model).compare(); }

}  // namespace gputrain::app::onnx
