// cuBLASLt for the linear layers of GPT-2 124M, BERT-base and ViT-B/16: every pass with the epilogues that training can
// fuse into it. Compares the library's first algorithm with the best of those it proposes.
//
// Tensors are row-major as in PyTorch: x [tokens, in], weight [out, in], y [tokens, out]. cuBLASLt is column-major, so
// each product computes the transposed result.
#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

enum class Pass { forward, input_gradient, weight_gradient };

struct Layer {
  const char *model, *name;
  int64_t tokens, in, out;
  int64_t apart = 0;  // row stride of dy if not `out`: a gradient without its padding
};

struct Variant {
  const char* name;
  Pass pass;
  cublasLtEpilogue_t epilogue;
  bool fp32_result;
  bool adds = false;    // accumulates into the result
  bool in_out = false;  // weight [in, out], as in GPT-2's files

  bool is_of(const Layer& layer) const {
    if (layer.apart > 0) return pass == Pass::weight_gradient && fp32_result && epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    return !in_out || (std::string_view(layer.model) == "gpt2" && layer.out < 4096);
  }
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all{{"gpt2", "qkv", 32768, 768, 2304},
                                      {"gpt2", "proj", 32768, 768, 768},
                                      {"gpt2", "fc1", 32768, 768, 3072},
                                      {"gpt2", "fc2", 32768, 3072, 768},
                                      {"gpt2", "head", 32768, 768, 50304},
                                      {"gpt2", "head unpadded", 32768, 768, 50257},
                                      {"gpt2", "head, 50257 of 50304", 32768, 768, 50257, 50304},
                                      {"bert", "qkv", 16384, 768, 2304},
                                      {"bert", "fc1", 16384, 768, 3072},
                                      {"bert", "fc2", 16384, 3072, 768},
                                      {"bert", "head", 16384, 768, 30528},
                                      {"bert", "head unpadded", 16384, 768, 30522},
                                      {"vit", "qkv", 50432, 768, 2304},
                                      {"vit", "fc1", 50432, 768, 3072},
                                      {"vit", "fc2", 50432, 3072, 768},
                                      {"square", "8192", 8192, 8192, 8192}};
  return all;
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"forward", Pass::forward, CUBLASLT_EPILOGUE_DEFAULT, false},
      {"forward + bias", Pass::forward, CUBLASLT_EPILOGUE_BIAS, false},
      {"forward + bias + GELU, input kept", Pass::forward, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, false},
      {"input gradient", Pass::input_gradient, CUBLASLT_EPILOGUE_DEFAULT, false},
      {"input gradient + GELU' + bias gradient", Pass::input_gradient, CUBLASLT_EPILOGUE_DGELU_BGRAD, false},
      {"weight gradient", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT, false},
      {"weight gradient, fp32", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT, true},
      {"weight gradient + bias gradient", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADB, false},
      {"weight gradient + bias gradient, fp32", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADB, true},
      {"weight gradient, fp32, added", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT, true, true},
      {"weight gradient + bias gradient, fp32, added", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADB, true, true},
      {"[in, out]: forward + bias + GELU, input kept", Pass::forward, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, false, false,
       true},
      {"[in, out]: input gradient + GELU' + bias gradient", Pass::input_gradient, CUBLASLT_EPILOGUE_DGELU_BGRAD, false,
       false, true},
      {"[in, out]: weight gradient, fp32, added", Pass::weight_gradient, CUBLASLT_EPILOGUE_DEFAULT, true, true, true},
      {"[in, out]: weight gradient + bias gradient, fp32, added", Pass::weight_gradient, CUBLASLT_EPILOGUE_BGRADA, true,
       true, true}};
  return all;
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

/// A tensor's memory as a column-major cuBLASLt matrix.
struct Layout {
  Layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t apart) {
    check(cublasLtMatrixLayoutCreate(&handle, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), apart),
          "matrix layout");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  cublasLtMatrixLayout_t handle{};
};

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

/// One product: operands, result, and the descriptor that holds its epilogue.
class Product {
 public:
  Product(const Layer& layer, const Variant& variant) : layer_(layer), variant_(variant) {
    const int64_t t = layer.tokens, in = layer.in, out = layer.out;
    x_ = noise({t, in}, at::kBFloat16);
    weight_ = variant.in_out ? noise({in, out}, at::kBFloat16, 0.02) : noise({out, in}, at::kBFloat16, 0.02);
    dy_ = noise({t, std::max(out, layer.apart)}, at::kBFloat16).narrow(1, 0, out);
    const auto result_type = variant.fp32_result ? at::kFloat : at::kBFloat16;
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(result_type);
    const auto poisoned = [&](at::IntArrayRef sizes) { return at::full(sizes, std::nan(""), options); };
    check(cublasLtCreate(&lt_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
    const bool in_out = variant.in_out;
    switch (variant.pass) {
      case Pass::forward:  // y^T [out, t] = W [out, in] x^T [in, t]
        set(CUBLASLT_MATMUL_DESC_TRANSA, in_out ? CUBLAS_OP_N : CUBLAS_OP_T);
        shape(weight_, x_, poisoned({t, out}));
        bias_ = noise({out}, at::kBFloat16);
        aux_ = at::empty({t, out}, options);
        break;
      case Pass::input_gradient:  // dx^T [in, t] = W^T [in, out] dy^T [out, t]
        set(CUBLASLT_MATMUL_DESC_TRANSA, in_out ? CUBLAS_OP_T : CUBLAS_OP_N);
        shape(weight_, dy_, poisoned({t, in}));
        bias_ = poisoned({in});
        aux_ = noise({t, in}, at::kBFloat16);
        break;
      case Pass::weight_gradient:  // dW^T [in, out] = x^T [in, t] dy [t, out]
        set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
        shape(in_out ? dy_ : x_, in_out ? x_ : dy_, poisoned({in_out ? in : out, in_out ? out : in}));
        bias_ = poisoned({out});
        break;
    }
    set_epilogue();
    workspace_ =
        at::empty({static_cast<int64_t>(kWorkspaceBytes)}, at::TensorOptions().device(at::kCUDA).dtype(at::kByte));
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(lt_);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(int most) {
    cublasLtMatmulPreference_t preference{};
    check(cublasLtMatmulPreferenceCreate(&preference), "preference");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                               sizeof kWorkspaceBytes),
          "preference");
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(lt_, operation_, a_layout_->handle, b_layout_->handle, d_layout_->handle,
                                       d_layout_->handle, preference, most, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "no algorithm");
    found.resize(static_cast<size_t>(count));
    return found;
  }

  void run(const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, kept = variant_.adds ? 1 : 0;
    check(cublasLtMatmul(lt_, operation_, &one, a_.data_ptr(), a_layout_->handle, b_.data_ptr(), b_layout_->handle,
                         &kept, result_.data_ptr(), d_layout_->handle, result_.data_ptr(), d_layout_->handle,
                         &algorithm, workspace_.data_ptr(), kWorkspaceBytes, c10::cuda::getCurrentCUDAStream()),
          "cublasLtMatmul");
  }

  void run_on_zeros(const cublasLtMatmulAlgo_t& algorithm) {
    if (variant_.adds) result_.zero_();
    run(algorithm);
  }

  /// Checks a slice, because fp64 is slow; the bias gradient is checked completely.
  void add_errors(Record& record) const {
    const int64_t rows = 256;
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor value = result_.narrow(0, 0, rows), matrix = wide(variant_.in_out ? weight_.t() : weight_);
    at::Tensor expected;
    switch (variant_.pass) {
      case Pass::forward:
        expected = at::matmul(wide(x_.narrow(0, 0, rows)), matrix.t());
        if (variant_.epilogue != CUBLASLT_EPILOGUE_DEFAULT) expected = expected + wide(bias_);
        if (variant_.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          record.set("kept_input_error", relative_error(aux_.narrow(0, 0, rows), expected));
          expected = at::gelu(expected, "tanh");
        }
        break;
      case Pass::input_gradient:
        expected = at::matmul(wide(dy_.narrow(0, 0, rows)), matrix);
        if (variant_.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
          expected = at::gelu_backward(expected, wide(aux_.narrow(0, 0, rows)), "tanh");
          record.set("bias_gradient_error", relative_error(bias_, at::sum(result_, {0}, false, at::kDouble)));
        }
        break;
      case Pass::weight_gradient:
        expected = variant_.in_out ? at::matmul(wide(x_.narrow(1, 0, rows)).t(), wide(dy_))
                                   : at::matmul(wide(dy_.narrow(1, 0, rows)).t(), wide(x_));
        if (variant_.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
          record.set("bias_gradient_error", relative_error(bias_, at::sum(dy_, {0}, false, at::kDouble)));
        }
        break;
    }
    record.set("relative_error", relative_error(value, expected));
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "attribute of the operation");
  }

  /// A row-major tensor is the transpose of a column-major matrix.
  void shape(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
    const auto layout = [](const at::Tensor& t) {
      const auto type = t.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF;
      return std::make_unique<Layout>(type, t.size(1), t.size(0), t.stride(0));
    };
    a_ = a;
    b_ = b;
    result_ = result;
    a_layout_ = layout(a);
    b_layout_ = layout(b);
    d_layout_ = layout(result);
  }

  void set_epilogue() {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, variant_.epilogue);
    if (variant_.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.data_ptr());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF);
    if (variant_.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || variant_.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_.data_ptr());
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result_.size(1));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16BF);
    }
  }

  Layer layer_;
  Variant variant_;
  at::Tensor x_, weight_, dy_, a_, b_, result_, bias_, aux_, workspace_;
  std::unique_ptr<Layout> a_layout_, b_layout_, d_layout_;
  cublasLtHandle_t lt_{};
  cublasLtMatmulDesc_t operation_{};
};

void measure(const Layer& layer, const Variant& variant, Record& record) {
  Product product(layer, variant);
  const auto algorithms = product.algorithms(12);
  double first = 0, best = 0;
  int best_index = -1, failed = 0;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    double ms = 0;
    try {
      ms = median_ms([&] { product.run(algorithms[i].algo); }, 5, 2);
    } catch (const std::runtime_error&) {  // proposed, but it rejects these pointers
      ++failed;
      continue;
    }
    if (i == 0) first = ms;
    if (best_index < 0 || ms < best) {
      best = ms;
      best_index = static_cast<int>(i);
    }
  }
  if (best_index < 0) throw std::runtime_error("none of the proposed algorithms runs");
  product.run_on_zeros(algorithms[static_cast<size_t>(best_index)].algo);
  const double flop =
      2.0 * static_cast<double>(layer.tokens) * static_cast<double>(layer.in) * static_cast<double>(layer.out);
  record.set("proposed", static_cast<int64_t>(algorithms.size())).set("refused", failed).set("first_ms", first);
  record.set("best_ms", best).set("best_is", best_index).set("TFLOP/s", flop / best / 1e9);
  product.add_errors(record);
}

}  // namespace

void probe_gemm(Report& report) {
  for (const Layer& layer : layers()) {
    for (const Variant& variant : variants()) {
      if (!variant.is_of(layer)) continue;
      Record record;
      record.set("model", layer.model).set("layer", layer.name).set("tokens", layer.tokens).set("in", layer.in);
      record.set("out", layer.out).set("product", variant.name);
      report.attempt("gemm", record, [&](Record& result) { measure(layer, variant, result); });
    }
  }
}

}  // namespace probe
