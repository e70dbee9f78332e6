// The loops of FloatKernels. Each float_kernels_<set>.cpp compiles them with its own flags; GCC vectorises them.

namespace gputrain::ops::cpu {
namespace {

constexpr int64_t kGrain = 8192;  // more elements than this use several threads

inline int64_t end_of(int64_t partial, int64_t rows) {
  const int64_t end = (partial + 1) * kRowsPerPartial;
  return end < rows ? end : rows;
}

// e^x to 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, n added to the exponent.
// Comparisons are written so that a NaN propagates.
inline float exponential(float x) {
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.0F ? -87.0F : x;
  const float n = (x * 1.44269504F + 12582912.0F) - 12582912.0F;  // rounds to an integer
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r) * r + r + 1.0F;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  return p * __builtin_bit_cast(float, bits);
}

// gelu_tanh(x) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): one exponential instead of a tanh.
constexpr float kGeluLinear = 1.5957691216F, kGeluCubic = 0.0713548162726F;  // coefficients of 2 u

inline float gelu_gate(float x) { return 1.0F / (1.0F + exponential(-x * (kGeluLinear + kGeluCubic * x * x))); }

void gelu_tanh(int threads, int64_t count, const float* __restrict x, float* __restrict y) {
#pragma omp parallel for simd schedule(static) num_threads(threads) if (count > kGrain)
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * gelu_gate(x[i]);
}

void gelu_tanh_backward(int threads, int64_t count, const float* __restrict x, const float* __restrict dy,
                        float* __restrict dx) {
#pragma omp parallel for simd schedule(static) num_threads(threads) if (count > kGrain)
  for (int64_t i = 0; i < count; ++i) {
    const float s = gelu_gate(x[i]);
    const float slope = kGeluLinear + 3.0F * kGeluCubic * x[i] * x[i];
    dx[i] = dy[i] * (s + x[i] * s * (1.0F - s) * slope);
  }
}

inline float sum_of(int64_t n, const float* __restrict x) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

inline float sum_of_squares(int64_t n, const float* __restrict x, float mean) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

inline void norm_row(const NormRows& rows, int64_t row, float* __restrict y) {
  const int64_t n = rows.channels;
  const float* __restrict x = rows.x + row * n;
  const float* __restrict weight = rows.weight;
  const float* __restrict bias = rows.bias;
  const float mean = rows.centred ? sum_of(n, x) / static_cast<float>(n) : 0.0F;
  const float variance = sum_of_squares(n, x, mean) / static_cast<float>(n);
  const float rstd = 1.0F / __builtin_sqrtf(variance + rows.eps);
  if (rows.centred) rows.mean[row] = mean;
  rows.rstd[row] = rstd;
  if (bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
  }
}

void norm(int threads, const NormRows& rows, float* y) {
#pragma omp parallel for schedule(static) num_threads(threads) if (rows.rows * rows.channels > kGrain)
  for (int64_t row = 0; row < rows.rows; ++row) norm_row(rows, row, y + row * rows.channels);
}

// With g = dy weight and h the normalised row: dx = rstd (g - mean(g) - h mean(g h)); no mean(g) without centring.
inline void norm_backward_row(const NormRows& rows, int64_t row, const float* __restrict dy, float* __restrict dx,
                              float* __restrict dweight) {
  const int64_t n = rows.channels;
  const float* __restrict x = rows.x + row * n;
  const float* __restrict weight = rows.weight;
  const float mean = rows.centred ? rows.mean[row] : 0.0F, rstd = rows.rstd[row];
  float sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (int64_t i = 0; i < n; ++i) {
    const float h = (x[i] - mean) * rstd, g = dy[i] * weight[i];
    dweight[i] += dy[i] * h;
    sum_g += g;
    sum_gh += g * h;
  }
  const float mean_g = rows.centred ? sum_g / static_cast<float>(n) : 0.0F, mean_gh = sum_gh / static_cast<float>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gh);
  }
}

void norm_backward(int threads, const NormRows& rows, const float* dy, float* dx, float* dweight, float* dbias) {
  const int64_t n = rows.channels, partials = partials_of(rows.rows);
#pragma omp parallel for schedule(static) num_threads(threads) if (rows.rows * rows.channels > kGrain)
  for (int64_t partial = 0; partial < partials; ++partial) {
    float* __restrict dw = dweight + partial * n;
    float* __restrict db = dbias == nullptr ? nullptr : dbias + partial * n;
    for (int64_t i = 0; i < n; ++i) dw[i] = 0;
    for (int64_t i = 0; db != nullptr && i < n; ++i) db[i] = 0;
    for (int64_t row = partial * kRowsPerPartial; row < end_of(partial, rows.rows); ++row) {
      const float* __restrict dy_row = dy + row * n;
      norm_backward_row(rows, row, dy_row, dx + row * n, dw);
      if (db == nullptr) continue;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) db[i] += dy_row[i];
    }
  }
}

// Two passes over rows that are still in the cache. The mean comes first, so that no digits cancel.
void batch_statistics(int threads, const BatchRows& batch, float* mean, float* squares) {
  const int64_t n = batch.channels, partials = partials_of(batch.rows);
#pragma omp parallel for schedule(static) num_threads(threads) if (batch.rows * n > kGrain)
  for (int64_t partial = 0; partial < partials; ++partial) {
    const int64_t begin = partial * kRowsPerPartial, end = end_of(partial, batch.rows);
    float* __restrict average = mean + partial * n;
    float* __restrict spread = squares + partial * n;
    for (int64_t i = 0; i < n; ++i) average[i] = spread[i] = 0;
    for (int64_t row = begin; row < end; ++row) {
      const float* __restrict x = batch.x + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) average[i] += x[i];
    }
    for (int64_t i = 0; i < n; ++i) average[i] /= static_cast<float>(end - begin);
    for (int64_t row = begin; row < end; ++row) {
      const float* __restrict x = batch.x + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) spread[i] += (x[i] - average[i]) * (x[i] - average[i]);
    }
  }
}

void batch_norm_relu(int threads, const BatchRows& batch, const float* residual, float* y) {
  const int64_t n = batch.channels;
  const float* __restrict scale = batch.scale;
  const float* __restrict shift = batch.shift;
#pragma omp parallel for schedule(static) num_threads(threads) if (batch.rows * n > kGrain)
  for (int64_t row = 0; row < batch.rows; ++row) {
    const float* __restrict x = batch.x + row * n;
    float* __restrict out = y + row * n;
    if (residual == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float value = x[i] * scale[i] + shift[i];
        out[i] = value < 0.0F ? 0.0F : value;  // a NaN propagates
      }
    } else {
      const float* __restrict added = residual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float value = x[i] * scale[i] + shift[i] + added[i];
        out[i] = value < 0.0F ? 0.0F : value;
      }
    }
  }
}

void batch_sums(int threads, const BatchRows& batch, const BatchGradient& gradient, float* sum_g, float* sum_gx) {
  const int64_t n = batch.channels, partials = partials_of(batch.rows);
  const float* __restrict scale = batch.scale;
  const float* __restrict shift = batch.shift;
  const float* __restrict mean = gradient.mean;
#pragma omp parallel for schedule(static) num_threads(threads) if (batch.rows * n > kGrain)
  for (int64_t partial = 0; partial < partials; ++partial) {
    float* __restrict all = sum_g + partial * n;
    float* __restrict all_x = sum_gx + partial * n;
    for (int64_t i = 0; i < n; ++i) all[i] = all_x[i] = 0;
    for (int64_t row = partial * kRowsPerPartial; row < end_of(partial, batch.rows); ++row) {
      const float* __restrict x = batch.x + row * n;
      const float* __restrict dy = gradient.dy + row * n;
      if (gradient.y == nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
          const float g = x[i] * scale[i] + shift[i] <= 0.0F ? 0.0F : dy[i];
          all[i] += g;
          all_x[i] += g * (x[i] - mean[i]);
        }
      } else {
        const float* __restrict y = gradient.y + row * n;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
          const float g = y[i] <= 0.0F ? 0.0F : dy[i];
          all[i] += g;
          all_x[i] += g * (x[i] - mean[i]);
        }
      }
    }
  }
}

void batch_norm_relu_backward(int threads, const BatchRows& batch, const BatchGradient& gradient, float* dx,
                              float* dresidual) {
  const int64_t n = batch.channels;
  const float* __restrict scale = batch.scale;
  const float* __restrict shift = batch.shift;
  const float* __restrict mean = gradient.mean;
  const float* __restrict slope = gradient.slope;
  const float* __restrict offset = gradient.offset;
#pragma omp parallel for schedule(static) num_threads(threads) if (batch.rows * n > kGrain)
  for (int64_t row = 0; row < batch.rows; ++row) {
    const float* __restrict x = batch.x + row * n;
    const float* __restrict dy = gradient.dy + row * n;
    float* __restrict out = dx + row * n;
    if (gradient.y == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = x[i] * scale[i] + shift[i] <= 0.0F ? 0.0F : dy[i];
        out[i] = g * scale[i] + (x[i] - mean[i]) * slope[i] + offset[i];
      }
    } else {
      const float* __restrict y = gradient.y + row * n;
      float* __restrict passed = dresidual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = y[i] <= 0.0F ? 0.0F : dy[i];
        passed[i] = g;
        out[i] = g * scale[i] + (x[i] - mean[i]) * slope[i] + offset[i];
      }
    }
  }
}

constexpr FloatKernels kernels_named(const char* name) {
  return {name,
          gelu_tanh,
          gelu_tanh_backward,
          norm,
          norm_backward,
          batch_statistics,
          batch_norm_relu,
          batch_sums,
          batch_norm_relu_backward,
          conv_gradient_workspace,
          conv_weight_gradient};
}

}  // namespace
}  // namespace gputrain::ops::cpu
