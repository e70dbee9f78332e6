// 8 bits a weight with a scale for each row, as bitsandbytes stores them: LLM.int8() (Dettmers et al.,
// arXiv:2208.07339). Only weights are quantised: products read them in the compute type.
#include <ATen/ops/zeros.h>

#include "bitsandbytes.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/quantized.hpp"

namespace gputrain::nn {
namespace {

class Int8 final : public Packing {
 public:
  explicit Int8(const config::NoOptions&) {}

  std::vector<Part> parts(const PackedShape& shape) const override {
    return {{"", at::kChar, {shape.rows, shape.columns}}, {"scales", at::kFloat, {shape.rows}}};
  }

  void pack(const at::Tensor& matrix, const std::vector<at::Tensor>& parts) const override {
    ops::quantize(matrix, ops::QuantizedRows{.codes = parts[0], .scales = parts[1]});
  }
  void unpack(const std::vector<at::Tensor>& parts, at::ScalarType, const at::Tensor& into) const override {
    // Files do not say which type the matrix had, and bitsandbytes rounds to that of the other factor alone.
    ops::dequantize(ops::QuantizedRows{.codes = parts[0], .scales = parts[1]}, at::kFloat, into);
  }

  std::optional<Options> options_in(const nlohmann::json& config) const override {
    for (const char* key : {"load_in_8bit", "_load_in_8bit"}) {
      const auto found = config.find(key);
      if (found != config.end() && found->is_boolean() && found->get<bool>()) return Options{{"type", "int8"}};
    }
    return std::nullopt;
  }
  nlohmann::json quantization_config() const override {
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", false},
            {"load_in_8bit", true},
            {"llm_int8_threshold", 6.0},
            {"llm_int8_has_fp16_weight", false}};
  }

  std::optional<FoundPacked> find(const FileTensors& files, const std::string& name) const override {
    const std::string scales = layer_of(name) + "SCB", format = layer_of(name) + "weight_format";
    if (!name.ends_with(".weight") || !files.has(scales)) return std::nullopt;
    const at::Tensor codes = files.tensor(name);
    if (codes.dim() != 2 || codes.scalar_type() != at::kChar) refuse_packed(files, name, "is no matrix of int8");
    packed_tensor(files, scales, at::kFloat, codes.size(0));
    FoundPacked found{.packing = std::make_shared<Int8>(config::NoOptions()),
                      .shape = {.rows = codes.size(0), .columns = codes.size(1), .stored = at::kFloat},
                      .parts =
                          [read = files.tensor, name, scales] {
                            return std::vector{read(name), read(scales)};
                          },
                      .names_beside = {scales}};
    if (!files.has(format)) return found;
    found.names_beside.push_back(format);
    if (packed_tensor(files, format, at::kByte, 1).item<int64_t>() != 0)
      refuse_packed(files, format, "is not 0: rows in the order of a GPU's tiles are not read");
    return found;
  }

  Named in_file(const std::string& name, const PackedShape&, const std::vector<at::Tensor>& parts) const override {
    return {{name, parts[0]},
            {layer_of(name) + "SCB", parts[1]},
            {layer_of(name) + "weight_format", at::zeros({}, at::kByte)}};
  }
};

const config::Registered<Int8, config::NoOptions> registered_int8{packings(), "int8", "8 bits, a scale for each row"};

}  // namespace
}  // namespace gputrain::nn
