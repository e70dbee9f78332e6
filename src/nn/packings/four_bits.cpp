// NF4 and FP4 of bitsandbytes: QLoRA (Dettmers et al., arXiv:2305.14314).
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <ATen/ops/allclose.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "bitsandbytes.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/ops/quantized.hpp"

namespace gputrain::nn {
namespace {

constexpr std::array<int64_t, 8> kBlockSizes{32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr const char* kState = ".quant_state.bitsandbytes__";

struct FourBitsSpec {
  bool twice = true;
  std::string block_size = "64";

  int64_t block() const { return std::stoll(block_size); }

  static void describe(config::Description<FourBitsSpec>& d) {
    d.summary("four bits a weight, in blocks that share a scale (Dettmers et al., arXiv:2305.14314)");
    d.key("double", &FourBitsSpec::twice, "whether scales have 8 bits too: 0.127 bits a weight for them instead of 0.5")
        .aliases({"use_double_quant", "bnb_4bit_use_double_quant", "double_quant"});
    d.key("block_size", &FourBitsSpec::block_size, "weights that share a scale")
        .choices({"32", "64", "128", "256", "512", "1024", "2048", "4096"});
  }
};

/// Names of the types of values, as PyTorch has them.
constexpr std::array<std::pair<const char*, at::ScalarType>, 3> kTypes{
    {{"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float32", at::kFloat}}};

std::string name_of(at::ScalarType type) {
  for (const auto& [name, one] : kTypes)
    if (one == type) return name;
  return "float32";
}

class FourBits : public Packing {
 public:
  FourBits(const FourBitsSpec& spec, ops::Codebook book) : spec_(spec), book_(book) {}

  std::vector<Part> parts(const PackedShape& shape) const override {
    const int64_t count = shape.rows * shape.columns, blocks = ceil_divide(count, spec_.block());
    std::vector<Part> parts{{"", at::kByte, {ceil_divide(count, int64_t{2})}},
                            {"absmax", spec_.twice ? at::kByte : at::kFloat, {blocks}}};
    if (!spec_.twice) return parts;
    parts.push_back({"nested_absmax", at::kFloat, {ceil_divide(blocks, ops::kScalesPerBlock)}});
    parts.push_back({"nested_offset", at::kFloat, {1}});
    return parts;
  }

  void pack(const at::Tensor& matrix, const std::vector<at::Tensor>& parts) const override {
    ops::quantize(matrix, quantized(parts));
  }
  void unpack(const std::vector<at::Tensor>& parts, at::ScalarType stored, const at::Tensor& into) const override {
    ops::dequantize(quantized(parts), stored, into);
  }

  std::optional<Options> options_in(const nlohmann::json& config) const override;
  nlohmann::json quantization_config() const override;
  std::optional<FoundPacked> find(const FileTensors& files, const std::string& name) const override;
  Named in_file(const std::string& name, const PackedShape& shape, const std::vector<at::Tensor>& parts) const override;

 private:
  std::string type() const { return book_ == ops::Codebook::nf4 ? "nf4" : "fp4"; }

  ops::Quantized4 quantized(const std::vector<at::Tensor>& parts) const {
    ops::Quantized4 all{.book = book_, .block = spec_.block(), .codes = parts[0], .scales = parts[1]};
    if (!spec_.twice) return all;
    all.scale_scales = parts[2];
    all.scale_offset = parts[3];
    return all;
  }

  FourBitsSpec spec_;
  ops::Codebook book_;
};

std::optional<Packing::Options> FourBits::options_in(const nlohmann::json& config) const {
  // transformers' defaults, which differ from ours.
  const auto is_set = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_boolean() && found->get<bool>();
  };
  if (config.value("quant_method", nlohmann::json()) != "bitsandbytes") return std::nullopt;
  if (!is_set("load_in_4bit") && !is_set("_load_in_4bit")) return std::nullopt;
  const auto told = config.find("bnb_4bit_quant_type");
  if ((told == config.end() ? nlohmann::json("fp4") : *told) != type()) return std::nullopt;
  return Options{{"type", type()}, {"double", is_set("bnb_4bit_use_double_quant") ? "true" : "false"}};
}

nlohmann::json FourBits::quantization_config() const {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", type()},
          {"bnb_4bit_use_double_quant", spec_.twice},
          {"bnb_4bit_compute_dtype", "bfloat16"},
          {"bnb_4bit_quant_storage", "uint8"}};
}

/// Description of a packed matrix in a file: a JSON text whose letters are a tensor's bytes.
struct State {
  PackedShape shape;
  int64_t block_size = 0;
  std::optional<double> nested_offset;
};

State read_state(const FileTensors& files, const std::string& name) {
  const at::Tensor bytes = files.tensor(name).contiguous();
  if (bytes.scalar_type() != at::kByte) refuse_packed(files, name, "is not JSON");
  const std::string_view text(static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel()));
  const nlohmann::json told = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  State state;
  try {
    const auto& sizes = told.at("shape");
    if (sizes.size() != 2) refuse_packed(files, name, "is of a tensor that is no matrix");
    state.shape.rows = sizes.at(0);
    state.shape.columns = sizes.at(1);
    const auto* const type = std::ranges::find(kTypes, told.at("dtype").get<std::string>(),
                                               [](const auto& one) { return std::string(one.first); });
    if (type == kTypes.end()) refuse_packed(files, name, "names another dtype than bfloat16, float16 and float32");
    state.shape.stored = type->second;
    state.block_size = told.at("blocksize");
    if (const auto offset = told.find("nested_offset"); offset != told.end() && !offset->is_null()) {
      state.nested_offset = offset->get<double>();
      if (told.at("nested_blocksize") != ops::kScalesPerBlock)
        refuse_packed(files, name, "has scales in blocks of other sizes than 256");
    }
  } catch (const nlohmann::json::exception&) {
    refuse_packed(files, name, "does not say shape, dtype, blocksize and nested_blocksize");
  }
  if (std::ranges::find(kBlockSizes, state.block_size) == kBlockSizes.end())
    refuse_packed(files, name, "has blocks of " + std::to_string(state.block_size) + " weights, which are not read");
  constexpr int64_t kMost = int64_t{1} << 32;
  if (state.shape.rows < 1 || state.shape.columns < 1 || state.shape.rows > kMost || state.shape.columns > kMost)
    refuse_packed(files, name, "has a shape that no matrix has");
  return state;
}

void check_table(const FileTensors& files, const std::string& name, const std::vector<float>& ours) {
  const at::Tensor theirs = packed_tensor(files, name, at::kFloat, std::ssize(ours));
  if (!at::allclose(theirs, at::tensor(ours), /*rtol=*/0, /*atol=*/1e-7))
    refuse_packed(files, name, "has other values than those of its type");
}

std::optional<FoundPacked> FourBits::find(const FileTensors& files, const std::string& name) const {
  const std::string state_name = name + kState + type();
  if (!files.has(state_name)) return std::nullopt;
  const State state = read_state(files, state_name);
  const bool is_nested = state.nested_offset.has_value();
  FoundPacked found{
      .packing = std::make_shared<FourBits>(FourBitsSpec{is_nested, std::to_string(state.block_size)}, book_),
      .shape = state.shape,
      .parts = {},
      .names_beside = {state_name}};
  const std::vector<Part> parts = found.packing->parts(state.shape);
  const at::Tensor codes = files.tensor(name);
  if (!codes.is_contiguous() || static_cast<int64_t>(codes.nbytes()) != parts[0].sizes[0])
    refuse_packed(
        files, name,
        "has " + std::to_string(codes.nbytes()) + " bytes, and its shape needs " + std::to_string(parts[0].sizes[0]));
  std::vector<std::string> scales;
  const auto take = [&](const Part& part) {
    scales.push_back(name + "." + part.name);
    packed_tensor(files, scales.back(), part.type, part.sizes[0]);
  };
  const auto check = [&](const char* table, const std::vector<float>& ours) {
    found.names_beside.push_back(name + table);
    check_table(files, found.names_beside.back(), ours);
  };
  const auto& book = ops::values_of(book_);
  take(parts[1]);
  check(".quant_map", {book.begin(), book.end()});
  if (is_nested) {
    take(parts[2]);
    const auto& of_scales = ops::scale_values();
    check(".nested_quant_map", {of_scales.begin(), of_scales.end()});
  }
  found.names_beside.insert(found.names_beside.end(), scales.begin(), scales.end());
  found.parts = [read = files.tensor, name, scales, offset = state.nested_offset] {
    std::vector<at::Tensor> all{read(name).view(at::kByte).reshape({-1})};  // stored as other types for FSDP
    for (const std::string& one : scales) all.push_back(read(one).reshape({-1}));
    if (offset) all.push_back(at::zeros({1}, at::kFloat).fill_(*offset));
    return all;
  };
  return found;
}

Packing::Named FourBits::in_file(const std::string& name, const PackedShape& shape,
                                 const std::vector<at::Tensor>& parts) const {
  const auto& book = ops::values_of(book_);
  Named named{{name, parts[0].unsqueeze(1)},
              {name + ".absmax", parts[1]},
              {name + ".quant_map", at::tensor(std::vector<float>(book.begin(), book.end()))}};
  nlohmann::ordered_json state{{"quant_type", type()},
                               {"blocksize", spec_.block()},
                               {"dtype", name_of(shape.stored)},
                               {"shape", {shape.rows, shape.columns}}};
  if (spec_.twice) {
    const auto& of_scales = ops::scale_values();
    named.emplace_back(name + ".nested_absmax", parts[2]);
    named.emplace_back(name + ".nested_quant_map", at::tensor(std::vector<float>(of_scales.begin(), of_scales.end())));
    state["nested_blocksize"] = ops::kScalesPerBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(parts[3].item<float>());
  }
  const std::string text = state.dump();
  named.emplace_back(name + kState + type(), at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte));
  return named;
}

class Nf4 final : public FourBits {
 public:
  explicit Nf4(const FourBitsSpec& spec) : FourBits(spec, ops::Codebook::nf4) {}
};

class Fp4 final : public FourBits {
 public:
  explicit Fp4(const FourBitsSpec& spec) : FourBits(spec, ops::Codebook::fp4) {}
};

const config::Registered<Nf4, FourBitsSpec> registered_nf4{packings(), "nf4",
                                                           "values that suit weights with a normal distribution"};
const config::Registered<Fp4, FourBitsSpec> registered_fp4{packings(), "fp4",
                                                           "a sign, two bits of exponent, one of mantissa"};

}  // namespace
}  // namespace gputrain::nn
