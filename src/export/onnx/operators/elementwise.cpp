// Operators that compute each element by itself.
#include <c10/core/ScalarType.h>

#include "../translation.hpp"

namespace gputrain::app::onnx {
namespace {

template <const char* kType>
void unary(Translation& t) {
  t.give(t.graph.add(kType, {t.operand("self", t.result().type)}));
}

template <const char* kType>
void arithmetic(Translation& t) {
  const at::ScalarType type = t.result().type;
  if (t.has("rounding_mode")) t.refuse("with a rounding mode");
  std::string other = t.operand("other", type);
  if (t.has("alpha") && t.real("alpha") != 1) other = t.graph.add("Mul", {other, t.operand("alpha", type)});
  t.give(t.graph.add(kType, {t.operand("self", type), other}));
}

void rsub(Translation& t) {
  const at::ScalarType type = t.result().type;
  if (t.real("alpha") != 1) t.refuse("with a factor");
  t.give(t.graph.add("Sub", {t.operand("other", type), t.operand("self", type)}));
}

/// Returns the type in which two operands are compared; a number takes that of the tensor.
at::ScalarType compared_type(const Translation& t) {
  const at::ScalarType type = t.value("self").type;
  return t.is_tensor("other") ? c10::promoteTypes(type, t.value("other").type) : type;
}

template <const char* kType>
void comparison(Translation& t) {
  const at::ScalarType type = compared_type(t);
  t.give(t.graph.add(kType, {t.operand("self", type), t.operand("other", type)}));
}

void not_equal(Translation& t) {
  const at::ScalarType type = compared_type(t);
  t.give(t.graph.add("Not", {t.graph.add("Equal", {t.operand("self", type), t.operand("other", type)})}));
}

template <const char* kType>
void logical(Translation& t) {
  t.give(t.graph.add(kType, {t.operand("self", at::kBool), t.operand("other", at::kBool)}));
}

void logical_not(Translation& t) { t.give(t.graph.add("Not", {t.operand("self", at::kBool)})); }

void where(Translation& t) {
  const at::ScalarType type = t.result().type;
  t.give(t.graph.add("Where", {t.tensor("condition"), t.operand("self", type), t.operand("other", type)}));
}

void masked_fill(Translation& t) {
  const at::ScalarType type = t.result().type;
  t.give(t.graph.add("Where", {t.tensor("mask"), t.operand("value", type), t.operand("self", type)}));
}

void clamp(Translation& t) {
  const at::ScalarType type = t.result().type;
  std::vector<std::string> inputs{t.operand("self", type), t.has("min") ? t.operand("min", type) : ""};
  if (t.has("max")) inputs.push_back(t.operand("max", type));
  t.give(t.graph.add("Clip", std::move(inputs)));
}

void power(Translation& t) {
  const at::ScalarType type = t.result().type;
  t.give(t.graph.add("Pow", {t.operand("self", type), t.operand("exponent", type)}));
}

void rsqrt(Translation& t) {
  t.give(t.graph.add("Reciprocal", {t.graph.add("Sqrt", {t.operand("self", t.result().type)})}));
}

void addcmul(Translation& t) {
  const at::ScalarType type = t.result().type;
  std::string product = t.graph.add("Mul", {t.operand("tensor1", type), t.operand("tensor2", type)});
  if (t.real("value") != 1) product = t.graph.add("Mul", {product, t.operand("value", type)});
  t.give(t.graph.add("Add", {t.operand("self", type), product}));
}

void silu(Translation& t) {
  const std::string x = t.tensor("self");
  t.give(t.graph.add("Mul", {x, t.graph.add("Sigmoid", {x})}));
}

void gelu(Translation& t) { t.give(t.graph.add("Gelu", {t.tensor("self")}, {{"approximate", t.text("approximate")}})); }

void hardsigmoid(Translation& t) {
  t.give(t.graph.add("HardSigmoid", {t.tensor("self")}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}}));
}

void dropout(Translation& t) {
  if (t.flag("train")) t.refuse("in training");
  t.give(t.tensor(t.has("input") ? "input" : "self"));
}

/// Translates copies and changes of type or of order in memory.
void converted(Translation& t) { t.give(t.operand("self", t.result().type)); }

constexpr char kAbs[] = "Abs", kAdd[] = "Add", kAnd[] = "And", kCos[] = "Cos", kDiv[] = "Div", kEqual[] = "Equal",
               kErf[] = "Erf", kExp[] = "Exp", kGreater[] = "Greater", kGreaterOrEqual[] = "GreaterOrEqual",
               kHardSwish[] = "HardSwish", kLess[] = "Less", kLessOrEqual[] = "LessOrEqual", kLog[] = "Log",
               kMul[] = "Mul", kNeg[] = "Neg", kOr[] = "Or", kReciprocal[] = "Reciprocal", kRelu[] = "Relu",
               kSigmoid[] = "Sigmoid", kSin[] = "Sin", kSqrt[] = "Sqrt", kSub[] = "Sub", kTanh[] = "Tanh";

const Operators elementwise{
    {"abs", unary<kAbs>},
    {"add", arithmetic<kAdd>},
    {"addcmul", addcmul},
    {"clamp", clamp},
    {"clamp_max", clamp},
    {"clamp_min", clamp},
    {"clone", converted},
    {"contiguous", converted},
    {"cos", unary<kCos>},
    {"detach", converted},
    {"div", arithmetic<kDiv>},
    {"dropout", dropout},
    {"eq", comparison<kEqual>},
    {"erf", unary<kErf>},
    {"exp", unary<kExp>},
    {"ge", comparison<kGreaterOrEqual>},
    {"gelu", gelu},
    {"gt", comparison<kGreater>},
    {"hardsigmoid", hardsigmoid},
    {"hardswish", unary<kHardSwish>},
    {"le", comparison<kLessOrEqual>},
    {"log", unary<kLog>},
    {"logical_and", logical<kAnd>},
    {"logical_not", logical_not},
    {"logical_or", logical<kOr>},
    {"lt", comparison<kLess>},
    {"masked_fill", masked_fill},
    {"mul", arithmetic<kMul>},
    {"ne", not_equal},
    {"neg", unary<kNeg>},
    {"pow", power},
    {"reciprocal", unary<kReciprocal>},
    {"relu", unary<kRelu>},
    {"rsqrt", rsqrt},
    {"rsub", rsub},
    {"sigmoid", unary<kSigmoid>},
    {"silu", silu},
    {"sin", unary<kSin>},
    {"sqrt", unary<kSqrt>},
    {"sub", arithmetic<kSub>},
    {"tanh", unary<kTanh>},
    {"to", converted},
    {"where", where},
};

}  // namespace
}  // namespace gputrain::app::onnx
