// Conversions between fp32 and other floats, for kernels that are compiled once per instruction set.
#if defined(__AVX2__)
#include <immintrin.h>
#else
#include <c10/util/Half.h>
#endif

namespace gputrain::ops::cpu {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

inline void widen(int64_t count, const float* __restrict from, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

inline void widen(int64_t count, const double* __restrict from, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void widen(int64_t count, const Bf16* __restrict from, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i].bits) << 16);
}

inline void widen(int64_t count, const Fp16* __restrict from, float* __restrict to) {
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = _cvtsh_ss(from[i].bits);
#else
  for (; i < count; ++i) to[i] = c10::Half(from[i].bits, c10::Half::from_bits());
#endif
}

template <class To>
inline void narrow(int64_t count, const float* __restrict from, To* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// Half to even; NaNs become the same NaN.
template <>
inline void narrow(int64_t count, const float* __restrict from, Bf16* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]), rounded = bits + 0x7FFF + (bits >> 16 & 1);
    to[i].bits = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded >> 16);
  }
}

template <>
inline void narrow(int64_t count, const float* __restrict from, Fp16* __restrict to) {
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) to[i].bits = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
#else
  for (; i < count; ++i) to[i].bits = c10::Half(from[i]).x;
#endif
}

/// Calls visit(a value of the type).
template <class Visit>
inline void with_type(Number type, const Visit& visit) {
  switch (type) {
    case Number::fp32:
      return visit(float{});
    case Number::bf16:
      return visit(Bf16{});
    case Number::fp16:
      return visit(Fp16{});
    case Number::fp64:
      return visit(double{});
  }
}

template <class T>
constexpr bool kIsNarrow = sizeof(T) < sizeof(float);

/// Rounds up to `kMost` values to a type.
template <class Stored, size_t kMost>
inline void round_to(int64_t count, float* values) {
  if constexpr (kIsNarrow<Stored>) {
    Stored rounded[kMost];
    narrow(count, values, rounded);
    widen(count, rounded, values);
  }
}

}  // namespace
}  // namespace gputrain::ops::cpu
