// The loops of QuantizedKernels.
#include <utility>

namespace gputrain::ops::cpu {
namespace {

constexpr int64_t kGrain = 8192;  // more values than this use several threads
constexpr int kPiece = 512;       // values of a row that are widened at a time
constexpr int kCodes = 16;

/// Finds the largest magnitude; a NaN counts as the largest. Magnitudes are ordered as their bits are.
inline float largest(int64_t count, const float* __restrict values, float before) {
  int32_t most = __builtin_bit_cast(int32_t, before);
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, values[i]) & 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  return __builtin_bit_cast(float, most);
}

inline void widen_part(const Numbers& from, int64_t begin, int64_t count, float* to) {
  with_type(from.type, [&](auto like) { widen(count, static_cast<const decltype(like)*>(from.data) + begin, to); });
}

/// Returns the code of a value. No loop, so that a loop over values is vectorised.
template <size_t... step>
inline int32_t code_of(float value, const CodeSteps& steps, std::index_sequence<step...>) {
  return (steps.first ^ ... ^ (value > steps.bounds[step] ? steps.changes[step] : 0));
}

inline void quantize_block(int64_t count, float* __restrict values, bool is_full, CodeSteps steps,
                           uint8_t* __restrict codes, float* scale) {
  constexpr float kLeast = 1e-38F;
  int32_t found[kMostInBlock + 1];
  const float most = largest(count, values, 0), divisor = most < kLeast ? kLeast : most, factor = 1 / divisor;
  *scale = is_full ? most : divisor;
  if (is_full) {
    for (int64_t i = 0; i < count; ++i) values[i] *= factor;
  } else {
    for (int64_t i = 0; i < count; ++i) values[i] /= divisor;
  }
  values[count] = 0;  // what the half after the last of an odd number of values stands for
  for (int64_t i = 0; i < count + 1; ++i) found[i] = code_of(values[i], steps, std::make_index_sequence<kCodes - 1>());
  for (int64_t i = 0; i < (count + 1) / 2; ++i) codes[i] = static_cast<uint8_t>(found[2 * i] << 4 | found[2 * i + 1]);
}

void quantize(int threads, const Numbers& matrix, int64_t count, int64_t block, const CodeSteps& steps, uint8_t* codes,
              float* scales) {
#pragma omp parallel for schedule(static) num_threads(threads) if (count > kGrain)
  for (int64_t begin = 0; begin < count; begin += block) {
    float values[kMostInBlock + 1];
    const int64_t left = count - begin, size = left < block ? left : block;
    widen_part(matrix, begin, size, values);
    quantize_block(size, values, size == block, steps, codes + begin / 2, scales + begin / block);
  }
}

inline float scale_of(const CodedBlocks& p, int64_t index) {
  if (p.scales != nullptr) return p.scales[index];
  const float product = p.tree[p.scale_codes[index]] * p.outer_scales[index / kScalesPerOuter];
  return product + p.offset;
}

// Codes of 32 values, in their order.
#if defined(__AVX2__)
inline void split(const uint8_t* codes, __m128i& first, __m128i& second) {
  const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)), low = _mm_set1_epi8(0x0F);
  const __m128i even = _mm_and_si128(_mm_srli_epi16(pairs, 4), low), odd = _mm_and_si128(pairs, low);
  first = _mm_unpacklo_epi8(even, odd);
  second = _mm_unpackhi_epi8(even, odd);
}

/// Looks up both bytes of each value: a table of 16 bytes is one register.
template <class T>
inline int64_t look_up(const uint8_t* codes, int64_t count, const T (&table)[kCodes], T* to) requires(sizeof(T) == 2) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table));
  const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12,
                                         14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, order), 0b11011000);
  const __m256i low = _mm256_permute2x128_si256(bytes, bytes, 0x00);
  const __m256i high = _mm256_permute2x128_si256(bytes, bytes, 0x11);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m128i first, second;
    split(codes + i / 2, first, second);
    const __m256i index = _mm256_set_m128i(second, first);
    const __m256i lows = _mm256_shuffle_epi8(low, index), highs = _mm256_shuffle_epi8(high, index);
    const __m256i one = _mm256_unpacklo_epi8(lows, highs), other = _mm256_unpackhi_epi8(lows, highs);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute2x128_si256(one, other, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 16), _mm256_permute2x128_si256(one, other, 0x31));
  }
  return i;
}
#endif

#if defined(__AVX512F__)
inline int64_t look_up(const uint8_t* codes, int64_t count, const float (&table)[kCodes], float* to) {
  const __m512 values = _mm512_loadu_ps(table);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m128i first, second;
    split(codes + i / 2, first, second);
    _mm512_storeu_ps(to + i, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(first), values));
    _mm512_storeu_ps(to + i + 16, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(second), values));
  }
  return i;
}
#elif defined(__AVX2__)
inline __m256 look_up(__m256 low, __m256 high, __m128i codes) {
  const __m256i index = _mm256_cvtepu8_epi32(codes);
  const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));  // its sign
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index), is_high);
}

inline int64_t look_up(const uint8_t* codes, int64_t count, const float (&table)[kCodes], float* to) {
  const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m128i first, second;
    split(codes + i / 2, first, second);
    _mm256_storeu_ps(to + i, look_up(low, high, first));
    _mm256_storeu_ps(to + i + 8, look_up(low, high, _mm_srli_si128(first, 8)));
    _mm256_storeu_ps(to + i + 16, look_up(low, high, second));
    _mm256_storeu_ps(to + i + 24, look_up(low, high, _mm_srli_si128(second, 8)));
  }
  return i;
}
#endif

/// Looks up as many values as this instruction set does at a time, and returns their number.
template <class T>
inline int64_t look_up(const uint8_t*, int64_t, const T (&)[kCodes], T*) {
  return 0;
}

template <class Stored, class T>
inline void dequantize_blocks(int threads, const CodedBlocks& p, T* into) {
#pragma omp parallel for schedule(static) num_threads(threads) if (p.count > kGrain)
  for (int64_t begin = 0; begin < p.count; begin += p.block) {
    const float scale = scale_of(p, begin / p.block);
    float values[kCodes];
    T table[kCodes];
    for (int k = 0; k < kCodes; ++k) values[k] = p.book[k] * scale;
    round_to<Stored, kCodes>(kCodes, values);
    narrow(kCodes, values, table);
    const int64_t left = p.count - begin, size = left < p.block ? left : p.block;
    const uint8_t* const codes = p.codes + begin / 2;
    T* const to = into + begin;
    for (int64_t i = look_up(codes, size, table, to); i < size; ++i)
      to[i] = table[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 0x0F];
  }
}

void quantize_rows(int threads, const Numbers& matrix, int64_t rows, int64_t columns, int8_t* codes, float* scales) {
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * columns > kGrain)
  for (int64_t row = 0; row < rows; ++row) {
    float values[kPiece];
    const auto for_each_piece = [&](const auto& visit) {
      for (int64_t begin = 0; begin < columns; begin += kPiece) {
        const int64_t left = columns - begin, size = left < kPiece ? left : kPiece;
        widen_part(matrix, row * columns + begin, size, values);
        round_to<Fp16, kPiece>(size, values);
        visit(row * columns + begin, size);
      }
    };
    float most = 0;
    for_each_piece([&](int64_t, int64_t size) { most = largest(size, values, most); });
    scales[row] = most;
    const float inverse = 1 / most, factor = inverse * 127;
    for_each_piece([&](int64_t begin, int64_t size) {
      for (int64_t i = 0; i < size; ++i) {
        const float share = values[i] * factor, rounded = (share + 12582912.0F) - 12582912.0F;  // to an integer
        codes[begin + i] = static_cast<int8_t>(static_cast<int32_t>(share == share ? rounded : 0.0F));
      }
    });
  }
}

template <class Stored, class T>
inline void dequantize_rows(int threads, const CodedRows& p, T* into) {
  constexpr auto kStep = static_cast<float>(7.874015718698502e-3);  // about 1 / 127
#pragma omp parallel for schedule(static) num_threads(threads) if (p.rows * p.columns > kGrain)
  for (int64_t row = 0; row < p.rows; ++row) {
    float values[kPiece];
    const float scale = p.scales[row];
    for (int64_t column = 0; column < p.columns; column += kPiece) {
      const int64_t begin = row * p.columns + column, left = p.columns - column, size = left < kPiece ? left : kPiece;
      for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(p.codes[begin + i]) * scale * kStep;
      round_to<Stored, kPiece>(size, values);
      narrow(size, values, into + begin);
    }
  }
}

/// Calls visit(a value of the stored type, the address to write to), with fp32 where rounding to the stored type
/// changes nothing.
template <class Visit>
inline void with_types(Number stored, const WrittenNumbers& into, const Visit& visit) {
  with_type(into.type, [&](auto written) {
    auto* const to = static_cast<decltype(written)*>(into.data);
    if (stored == into.type) return visit(float{}, to);
    with_type(stored, [&](auto like) {
      if constexpr (kIsNarrow<decltype(like)>) {
        visit(like, to);
      } else {
        visit(float{}, to);
      }
    });
  });
}

void dequantize(int threads, const CodedBlocks& p, Number stored, const WrittenNumbers& into) {
  with_types(stored, into, [&](auto like, auto* to) { dequantize_blocks<decltype(like)>(threads, p, to); });
}

void dequantize_rows(int threads, const CodedRows& p, Number stored, const WrittenNumbers& into) {
  with_types(stored, into, [&](auto like, auto* to) { dequantize_rows<decltype(like)>(threads, p, to); });
}

constexpr QuantizedKernels quantized_kernels_named(const char* name) {
  return {name, quantize, dequantize, quantize_rows, dequantize_rows};
}

}  // namespace
}  // namespace gputrain::ops::cpu
