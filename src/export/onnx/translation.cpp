#include "translation.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app::onnx {
namespace {

std::map<std::string, Translator>& translators() {
  static std::map<std::string, Translator> all;
  return all;
}

}  // namespace

Operators::Operators(std::initializer_list<std::pair<const char*, Translator>> operators) {
  for (const auto& [name, translator] : operators) translators()[name] = translator;
}

void Translation::refuse(const std::string& why) const {
  throw Error(ExitCode::usage, {.what = fmt::format("the model calls {} {}, which is not translated", call_.name, why),
                                .where = "--format onnx"});
}

const Argument& Translation::argument(const char* name) const {
  const auto found = std::ranges::find(call_.arguments, name, &Argument::name);
  GPUTRAIN_ASSERT(found != call_.arguments.end(), call_.name + " has no argument " + name);
  return *found;
}

bool Translation::has(const char* name) const {
  const auto found = std::ranges::find(call_.arguments, name, &Argument::name);
  if (found == call_.arguments.end() || found->value.isNone()) return false;
  return !found->value.isTensor() || found->values.at(0) >= 0;
}

bool Translation::is_tensor(const char* name) const { return argument(name).value.isTensor(); }

std::string Translation::name_of(int value) {
  if (value < 0) return {};
  std::string& name = names_[static_cast<size_t>(value)];
  const at::Tensor& constant = trace_.values[static_cast<size_t>(value)].constant;
  if (name.empty() && constant.defined()) name = graph.constant(constant);
  GPUTRAIN_ASSERT(!name.empty(), call_.name + " reads what no translated operator gives");
  return name;
}

std::string Translation::tensor(const char* name) { return has(name) ? name_of(argument(name).values.at(0)) : ""; }

std::vector<std::string> Translation::tensors(const char* name) {
  std::vector<std::string> names;
  for (const int value : argument(name).values) names.push_back(name_of(value));
  return names;
}

const Value& Translation::value(const char* name) const {
  return trace_.values[static_cast<size_t>(argument(name).values.at(0))];
}

std::string Translation::operand(const char* name, at::ScalarType type) {
  if (is_tensor(name)) return cast(tensor(name), value(name).type, type);
  const Argument& number = argument(name);
  if (number.numbers.empty() || number.numbers[0].is_constant())
    return graph.number(number.value.toScalar().toDouble(), type);
  return cast(graph.add("Squeeze", {graph.size(number.numbers[0])}), at::kLong, type);
}

Size Translation::size(const char* name) const { return argument(name).numbers.at(0); }

int64_t Translation::integer(const char* name) const {
  if (!size(name).is_constant()) refuse(fmt::format("with a {} that depends on the number of samples or tokens", name));
  return size(name).constant;
}

std::vector<int64_t> Translation::integers(const char* name) const {
  std::vector<int64_t> values;
  for (const Size& size : argument(name).numbers) {
    if (!size.is_constant()) refuse(fmt::format("with a {} that depends on the number of samples or tokens", name));
    values.push_back(size.constant);
  }
  return values;
}

std::vector<int64_t> Translation::integers(const char* name, size_t count, int64_t missing) const {
  std::vector<int64_t> values = integers(name);
  if (values.size() == 1) values.resize(count, values[0]);
  values.resize(count, missing);
  return values;
}

double Translation::real(const char* name) const { return argument(name).value.toScalar().toDouble(); }

bool Translation::flag(const char* name) const { return argument(name).value.toBool(); }

std::string Translation::text(const char* name) const { return std::string(argument(name).value.toStringRef()); }

int64_t Translation::dim(const char* name) const {
  const int64_t given = integer(name);
  return given < 0 ? given + std::ssize(value("self").sizes) : given;
}

std::string Translation::cast(const std::string& name, at::ScalarType from, at::ScalarType to) {
  return from == to ? name : graph.add("Cast", {name}, {{"to", number_of_type(to)}});
}

void translate(const Trace& trace, const std::vector<std::string>& inputs, const std::string& output, Graph& graph) {
  std::vector<std::string> names(trace.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (trace.inputs[i] < 0) continue;
    const auto value = static_cast<size_t>(trace.inputs[i]);
    names[value] = inputs[i];
    graph.add_input({.name = inputs[i], .type = trace.values[value].type, .sizes = trace.values[value].sizes});
  }
  for (const Call& call : trace.calls) {
    Translation translation(trace, call, graph, names);
    const auto translator = translators().find(call.name);
    if (translator == translators().end()) translation.refuse("of ATen");
    translator->second(translation);
  }
  const auto last = static_cast<size_t>(trace.output);
  GPUTRAIN_ASSERT(!names[last].empty(), "the output depends on the inputs");
  graph.set_output(names[last], {.name = output, .type = trace.values[last].type, .sizes = trace.values[last].sizes});
}

}  // namespace gputrain::app::onnx
