// Operators that reduce many numbers to one, and softmax.
#include "../translation.hpp"

namespace gputrain::app::onnx {
namespace {

std::string reduced(Translation& t, const std::string& type) {
  std::vector<std::string> inputs{t.operand("self", t.result().type)};
  if (t.has("dim")) inputs.push_back(t.graph.numbers(t.integers("dim")));
  const int64_t keeps = t.has("keepdim") && t.flag("keepdim") ? 1 : 0;
  return t.graph.add(type, std::move(inputs), {{"keepdims", keeps}});
}

void mean(Translation& t) { t.give(reduced(t, "ReduceMean")); }

void sum(Translation& t) { t.give(reduced(t, "ReduceSum")); }

void vector_norm(Translation& t) {
  if (t.real("ord") != 2) t.refuse("of an order that is not 2");
  t.give(reduced(t, "ReduceL2"));
}

void softmax(Translation& t) {
  t.give(t.graph.add("Softmax", {t.operand("self", t.result().type)}, {{"axis", t.dim("dim")}}));
}

void log_softmax(Translation& t) {
  t.give(t.graph.add("LogSoftmax", {t.operand("self", t.result().type)}, {{"axis", t.dim("dim")}}));
}

const Operators reductions{
    {"linalg_vector_norm", vector_norm},
    {"log_softmax", log_softmax},
    {"mean", mean},
    {"softmax", softmax},
    {"sum", sum},
};

}  // namespace
}  // namespace gputrain::app::onnx
