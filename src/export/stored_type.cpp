#include "stored_type.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/ops/aminmax.h>
#include <c10/util/Half.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app {

StoredType stored_type_from_name(const std::string& name) {
  if (name == "f32") return StoredType::f32;
  if (name == "f16") return StoredType::f16;
  if (name == "bf16") return StoredType::bf16;
  GPUTRAIN_ASSERT(name == "q8_0", "one of the types that the command line takes");
  return StoredType::q8_0;
}

namespace {

[[noreturn]] void refuse_large(const std::string& name, const char* type) {
  throw Error(ExitCode::usage, {.what = "tensor '" + name + "' holds values too large for " + type,
                                .where = "--dtype",
                                .hint = std::string(type) == "bf16" ? "f32" : "bf16, or f32"});
}

bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.is_floating_point()) return true;
  const auto [least, most] = at::aminmax(tensor);  // both NaN if one value is
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

}  // namespace

at::Tensor converted(const std::string& name, const at::Tensor& tensor, StoredType type) {
  const at::ScalarType to = type == StoredType::f32 ? at::kFloat : type == StoredType::f16 ? at::kHalf : at::kBFloat16;
  const at::Tensor values = tensor.detach().to(at::kCPU), stored = values.to(to).contiguous();
  if (!is_finite(stored) && is_finite(values)) refuse_large(name, type == StoredType::f16 ? "f16" : "bf16");
  return stored;
}

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

std::string q8_0_bytes(const std::string& name, const at::Tensor& tensor) {
  constexpr int64_t kBlock = 32;
  const at::Tensor values = converted(name, tensor, StoredType::f32);
  GPUTRAIN_ASSERT(values.size(-1) % kBlock == 0, "rows of whole blocks");
  const float* const all = values.const_data_ptr<float>();
  std::string bytes;
  bytes.reserve(static_cast<size_t>(values.numel() / kBlock * (kBlock + 2)));
  for (int64_t begin = 0; begin < values.numel(); begin += kBlock) {
    const float* const block = all + begin;
    float largest = 0;
    for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(block[i]));
    const float scale = largest / 127, inverse = scale > 0 ? 1 / scale : 0;
    const c10::Half stored(scale);
    if (std::isfinite(scale) && std::isinf(static_cast<float>(stored))) refuse_large(name, "q8_0");
    bytes.append(reinterpret_cast<const char*>(&stored.x), sizeof(stored.x));
    for (int64_t i = 0; i < kBlock; ++i)
      bytes += static_cast<char>(static_cast<int8_t>(std::round(block[i] * inverse)));
  }
  return bytes;
}

}  // namespace gputrain::app
