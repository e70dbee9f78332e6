// Layers with weights, and pooling of images.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "../translation.hpp"

namespace gputrain::app::onnx {
namespace {

std::string transposed(Translation& t, const std::string& matrix) {
  return t.graph.add("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 0}}});
}

std::string with_bias(Translation& t, const std::string& y, const char* bias) {
  return t.has(bias) ? t.graph.add("Add", {y, t.tensor(bias)}) : y;
}

void linear(Translation& t) {
  const std::string x = t.tensor("input"), weight = t.tensor("weight");
  if (t.value("input").sizes.size() != 2)
    return t.give(with_bias(t, t.graph.add("MatMul", {x, transposed(t, weight)}), "bias"));
  std::vector<std::string> inputs{x, weight};
  if (t.has("bias")) inputs.push_back(t.tensor("bias"));
  t.give(t.graph.add("Gemm", std::move(inputs), {{"transB", int64_t{1}}}));
}

void addmm(Translation& t) {
  if (t.real("alpha") != 1 || t.real("beta") != 1) t.refuse("with factors");
  t.give(t.graph.add("Gemm", {t.tensor("mat1"), t.tensor("mat2"), t.tensor("self")}));
}

template <const char* kOther>
void matmul(Translation& t) {
  t.give(t.graph.add("MatMul", {t.tensor("self"), t.tensor(kOther)}));
}

void convolution(Translation& t) {
  std::vector<std::string> inputs{t.tensor("input"), t.tensor("weight")};
  if (t.has("bias")) inputs.push_back(t.tensor("bias"));
  const size_t dims = t.value("weight").sizes.size() - 2;
  std::vector<int64_t> pads = t.integers("padding", dims, 0);
  pads.insert(pads.end(), pads.begin(), pads.end());
  t.give(t.graph.add("Conv", std::move(inputs),
                     {{"strides", t.integers("stride", dims, 1)},
                      {"pads", pads},
                      {"dilations", t.integers("dilation", dims, 1)},
                      {"group", t.integer("groups")}}));
}

void transposed_convolution(Translation& t) {
  std::vector<std::string> inputs{t.tensor("input"), t.tensor("weight")};
  if (t.has("bias")) inputs.push_back(t.tensor("bias"));
  const size_t dims = t.value("weight").sizes.size() - 2;
  std::vector<int64_t> pads = t.integers("padding", dims, 0);
  pads.insert(pads.end(), pads.begin(), pads.end());
  t.give(t.graph.add("ConvTranspose", std::move(inputs),
                     {{"strides", t.integers("stride", dims, 1)},
                      {"pads", pads},
                      {"output_padding", t.integers("output_padding", dims, 0)},
                      {"dilations", t.integers("dilation", dims, 1)},
                      {"group", t.integer("groups")}}));
}

void bilinear(Translation& t) {
  if (t.flag("align_corners")) t.refuse("with aligned corners");
  t.give(t.graph.add("Resize", {t.tensor("self"), "", "", t.graph.shape(t.result().sizes)},
                     {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("half_pixel")}}));
}

/// Returns the weight of a norm, or ones if there is none.
std::string factor(Translation& t, int64_t channels) {
  return t.has("weight") ? t.tensor("weight") : t.graph.constant(at::ones({channels}, t.result().type));
}

std::string summand(Translation& t, int64_t channels) {
  return t.has("bias") ? t.tensor("bias") : t.graph.constant(at::zeros({channels}, t.result().type));
}

void batch_norm(Translation& t) {
  if (t.flag("training")) t.refuse("in training");
  const int64_t channels = t.value("running_mean").sizes[0].constant;
  t.give(t.graph.add(
      "BatchNormalization",
      {t.tensor("input"), factor(t, channels), summand(t, channels), t.tensor("running_mean"), t.tensor("running_var")},
      {{"epsilon", static_cast<float>(t.real("eps"))}}));
}

void layer_norm(Translation& t) {
  const std::vector<int64_t> sizes = t.integers("normalized_shape");
  if (sizes.size() != 1) t.refuse("of several dimensions");
  std::vector<std::string> inputs{t.tensor("input"), factor(t, sizes[0])};
  if (t.has("bias")) inputs.push_back(t.tensor("bias"));
  t.give(t.graph.add("LayerNormalization", std::move(inputs),
                     {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(t.real("eps"))}}));
}

void rms_norm(Translation& t) {
  if (t.integers("normalized_shape").size() != 1 || !t.has("eps")) t.refuse("of this kind");
  Graph& graph = t.graph;
  const std::string x = t.tensor("input");
  const std::string squares =
      graph.add("ReduceMean", {graph.add("Mul", {x, x}), graph.numbers({-1})}, {{"keepdims", int64_t{1}}});
  const std::string length = graph.add("Sqrt", {graph.add("Add", {squares, t.operand("eps", t.result().type)})});
  const std::string normed = graph.add("Div", {x, length});
  t.give(t.has("weight") ? graph.add("Mul", {normed, t.tensor("weight")}) : normed);
}

void embedding(Translation& t) {
  // A table with one row is expanded for all tokens, which then need not be inputs.
  if (t.value("weight").sizes[0] == Size{.constant = 1})
    return t.give(t.graph.add("Expand", {t.tensor("weight"), t.graph.shape(t.result().sizes)}));
  t.give(t.graph.add("Gather", {t.tensor("weight"), t.tensor("indices")}));
}

void max_pool(Translation& t) {
  constexpr size_t kDims = 2;
  const std::vector<int64_t> kernel = t.integers("kernel_size", kDims, 1);
  std::vector<int64_t> pads = t.integers("padding", kDims, 0), strides = t.integers("stride");
  if (strides.empty()) strides = kernel;
  strides.resize(kDims, strides[0]);
  pads.insert(pads.end(), pads.begin(), pads.end());
  t.give(t.graph.add("MaxPool", {t.tensor("self")},
                     {{"kernel_shape", kernel},
                      {"strides", strides},
                      {"pads", pads},
                      {"dilations", t.integers("dilation", kDims, 1)},
                      {"ceil_mode", int64_t{t.flag("ceil_mode")}}}));
}

void adaptive_average_pool(Translation& t) {
  for (const int64_t size : t.integers("output_size"))
    if (size != 1) t.refuse("to more than one pixel");
  t.give(t.graph.add("GlobalAveragePool", {t.tensor("self")}));
}

constexpr char kOther[] = "other", kMat2[] = "mat2";

const Operators layers{
    {"adaptive_avg_pool2d", adaptive_average_pool},
    {"addmm", addmm},
    {"batch_norm", batch_norm},
    {"bmm", matmul<kMat2>},
    {"conv2d", convolution},
    {"conv_transpose2d", transposed_convolution},
    {"embedding", embedding},
    {"layer_norm", layer_norm},
    {"linear", linear},
    {"matmul", matmul<kOther>},
    {"max_pool2d", max_pool},
    {"mm", matmul<kMat2>},
    {"rms_norm", rms_norm},
    {"upsample_bilinear2d", bilinear},
};

}  // namespace
}  // namespace gputrain::app::onnx
