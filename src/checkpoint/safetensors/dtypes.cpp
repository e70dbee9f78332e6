#include "dtypes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 15> kScalarTypes{{{"BOOL", at::kBool},
                                                                                    {"U8", at::kByte},
                                                                                    {"I8", at::kChar},
                                                                                    {"F8_E5M2", at::kFloat8_e5m2},
                                                                                    {"F8_E4M3", at::kFloat8_e4m3fn},
                                                                                    {"I16", at::kShort},
                                                                                    {"U16", at::kUInt16},
                                                                                    {"F16", at::kHalf},
                                                                                    {"BF16", at::kBFloat16},
                                                                                    {"I32", at::kInt},
                                                                                    {"U32", at::kUInt32},
                                                                                    {"F32", at::kFloat},
                                                                                    {"F64", at::kDouble},
                                                                                    {"I64", at::kLong},
                                                                                    {"U64", at::kUInt64}}};

}  // namespace

at::ScalarType scalar_type_of(std::string_view dtype) {
  const auto* found =
      std::find_if(kScalarTypes.begin(), kScalarTypes.end(), [&](const auto& entry) { return entry.first == dtype; });
  GPUTRAIN_ASSERT(found != kScalarTypes.end(), "the header parser lets through only dtypes of this table");
  return found->second;
}

std::string dtype_of(at::ScalarType type) {
  const auto* found =
      std::find_if(kScalarTypes.begin(), kScalarTypes.end(), [&](const auto& entry) { return entry.second == type; });
  GPUTRAIN_ASSERT(found != kScalarTypes.end(), std::string("safetensors has no dtype for ") + at::toString(type));
  return std::string(found->first);
}

bool are_truth_values(const char* data, size_t bytes) noexcept {
  return std::all_of(data, data + bytes, [](char byte) { return byte == 0 || byte == 1; });
}

}  // namespace gputrain::checkpoint
