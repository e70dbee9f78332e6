// Batch normalisation (Ioffe and Szegedy, arXiv:1502.03167). Statistics use Welford's update in a thread and Chan's
// rule between threads and blocks ("Updating formulae and a pairwise algorithm for computing sample variances", 1979).
// They subtract no large sums, so a mean far above the deviation costs no digits.
// Registers: batch_statistics_kernel 48, batch_moments_kernel 64, batch_apply_kernel 48, batch_sums_kernel 80
// Registers: batch_slopes_kernel 48, batch_gradient_kernel 96
#include "batch_norm.hpp"

#include "columns.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kChannels = 32, kWorkers = 8;  // of a block that adds up parts

/// Merges `count_b` values with mean b and their squared distances from it into those of a.
template <class Value>
__device__ void join(Value& count_a, Value& mean_a, Value& squares_a, Value count_b, Value mean_b, Value squares_b) {
  if (count_b == 0) return;
  const Value count = count_a + count_b, distance = mean_b - mean_a, share = count_b / count;
  mean_a += distance * share;
  squares_a += squares_b + distance * distance * count_a * share;
  count_a = count;
}

/// Returns the number of rows that this worker visits, of `workers` that take turns.
__device__ inline int64_t turns(int64_t rows, int64_t worker, int64_t workers) {
  return worker < rows ? (rows - worker - 1) / workers + 1 : 0;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) batch_statistics_kernel(ImageRows p, const T* x, float* partials) {
  struct Values {
    float mean[kColumnThreads][kVector], squares[kColumnThreads][kVector];
  };
  Values& values = block_memory<Values>();
  const ColumnWalk<kVector> walk(p.rows, p.channels);
  float mean[kVector] = {}, squares[kVector] = {}, count = 0;
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    float value[kVector];
    load(x + row * p.channels + walk.column, value);
    count += 1;
    const float share = __fdividef(1.0F, count);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float distance = value[k] - mean[k];
      mean[k] += distance * share;
      squares[k] += distance * (value[k] - mean[k]);
    }
  }
  const int thread = thread_y() * threads_x() + thread_x();
  GPUTRAIN_UNROLL
  for (int k = 0; k < kVector; ++k) {
    values.mean[thread][k] = mean[k];
    values.squares[thread][k] = squares[k];
  }
  __syncthreads();
  if (thread_y() != 0 || walk.column >= p.channels) return;
  for (int y = 1; y < threads_y(); ++y) {
    const auto others = static_cast<float>(turns(p.rows, walk.first + y, walk.step));
    const int other = y * threads_x() + thread_x();
    float joined = count;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      joined = count;
      join(joined, mean[k], squares[k], others, values.mean[other][k], values.squares[other][k]);
    }
    count = joined;
  }
  float counts[kVector];
  GPUTRAIN_UNROLL
  for (int k = 0; k < kVector; ++k) counts[k] = count;
  float* const part = partials + static_cast<int64_t>(block_y()) * 3 * p.channels + walk.column;
  store_floats(part, counts);
  store_floats(part + p.channels, mean);
  store_floats(part + 2 * p.channels, squares);
}

/// Sums parts with kWorkers threads per channel: each sums some parts, and the first adds their sums in a fixed order.
__global__ void __launch_bounds__(kChannels* kWorkers) batch_moments_kernel(ImageRows images, BatchMoments p) {
  struct Values {
    double count[kWorkers][kChannels], mean[kWorkers][kChannels], squares[kWorkers][kChannels];
  };
  Values& values = block_memory<Values>();
  const int64_t channel = static_cast<int64_t>(block_x()) * kChannels + thread_x();
  double count = 0, mean = 0, squares = 0;
  if (channel < images.channels && p.partials == nullptr) {
    if (thread_y() == 0) {
      count = static_cast<double>(images.rows);
      mean = static_cast<double>(p.sums[channel]) / count;
      squares = static_cast<double>(p.sums[images.channels + channel]) - count * mean * mean;
      if (squares < 0) squares = 0;  // rounding error near zero
    }
  } else if (channel < images.channels) {
    for (int part = thread_y(); part < images.parts; part += kWorkers) {
      const float* const from = p.partials + static_cast<int64_t>(part) * 3 * images.channels + channel;
      join(count, mean, squares, static_cast<double>(from[0]), static_cast<double>(from[images.channels]),
           static_cast<double>(from[2 * images.channels]));
    }
  }
  values.count[thread_y()][thread_x()] = count;
  values.mean[thread_y()][thread_x()] = mean;
  values.squares[thread_y()][thread_x()] = squares;
  __syncthreads();
  if (thread_y() != 0 || channel >= images.channels) return;
  for (int y = 1; y < kWorkers; ++y) {
    join(count, mean, squares, values.count[y][thread_x()], values.mean[y][thread_x()], values.squares[y][thread_x()]);
  }
  const double rstd = 1 / sqrt(squares / count + static_cast<double>(p.eps));
  const double scale = static_cast<double>(p.weight[channel]) * rstd;
  p.mean[channel] = static_cast<float>(mean);
  p.rstd[channel] = static_cast<float>(rstd);
  p.scale[channel] = static_cast<float>(scale);
  p.shift[channel] = static_cast<float>(static_cast<double>(p.bias[channel]) - mean * scale);
  if (p.running_mean == nullptr) return;
  const auto follow = [&](float& running, double value) {
    const auto share = static_cast<double>(p.momentum);
    running = static_cast<float>((1 - share) * static_cast<double>(running) + share * value);
  };
  follow(p.running_mean[channel], mean);
  follow(p.running_var[channel], squares / fmax(count - 1, 1.0));  // a single value gives 0, not 0 / 0
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) batch_apply_kernel(ImageRows images, BatchApply p) {
  const ColumnWalk<kVector> walk(images.rows, images.channels);
  if (walk.column >= images.channels) return;
  float scale[kVector], shift[kVector];
  load_floats(p.scale + walk.column, scale);
  load_floats(p.shift + walk.column, shift);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * images.channels + walk.column;
    float y[kVector], residual[kVector] = {};
    load(static_cast<const T*>(p.x) + place, y);
    if (p.residual != nullptr) load(static_cast<const T*>(p.residual) + place, residual);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      y[k] = y[k] * scale[k] + shift[k] + residual[k];
      if (p.relu && y[k] < 0) y[k] = 0;  // a NaN propagates
    }
    store(static_cast<T*>(p.y) + place, y);
    if (p.passed == nullptr || kVector != kPackOf<T>) continue;
    unsigned bits = 0;
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) bits |= static_cast<unsigned>(!(y[k] <= 0)) << k;  // a NaN passes
    p.passed[place / kPackOf<T>] = static_cast<uint8_t>(bits);
  }
}

/// Loads dy where the ReLU let it through, else 0.
template <class T, int kVector>
__device__ void load_passed(const BatchGradient& p, int64_t place, const float (&x)[kVector],
                            const float (&scale)[kVector], const float (&shift)[kVector], float (&g)[kVector]) {
  load(static_cast<const T*>(p.dy) + place, g);
  if (!p.relu) return;
  if (p.passed != nullptr) {
    const unsigned bits = static_cast<unsigned>(p.passed[place / kPackOf<T>]) >> (place % kPackOf<T>);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      if ((bits >> k & 1U) == 0) g[k] = 0;
    }
    return;
  }
  float y[kVector];
  if (p.y != nullptr) {
    load(static_cast<const T*>(p.y) + place, y);
  } else {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) y[k] = x[k] * scale[k] + shift[k];
  }
  GPUTRAIN_UNROLL
  for (int k = 0; k < kVector; ++k) {
    if (y[k] <= 0) g[k] = 0;
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads, 3) batch_sums_kernel(ImageRows images, BatchGradient p) {
  const ColumnWalk<kVector> walk(images.rows, images.channels);
  float scale[kVector] = {}, shift[kVector] = {}, mean[kVector] = {}, sum[kVector] = {}, sum_x[kVector] = {};
  if (walk.column < images.channels) {
    load_floats(p.scale + walk.column, scale);
    load_floats(p.shift + walk.column, shift);
    load_floats(p.mean + walk.column, mean);
  }
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * images.channels + walk.column;
    float x[kVector], g[kVector];
    load(static_cast<const T*>(p.x) + place, x);
    load_passed<T>(p, place, x, scale, shift, g);
    if (p.dresidual != nullptr) store(static_cast<T*>(p.dresidual) + place, g);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      sum[k] += g[k];
      sum_x[k] += g[k] * (x[k] - mean[k]);
    }
  }
  float* const part = p.partials + static_cast<int64_t>(block_y()) * 2 * images.channels;
  write_column_sums(sum, walk.column, images.channels, part);
  write_column_sums(sum_x, walk.column, images.channels, part + images.channels);
}

__global__ void __launch_bounds__(kChannels* kWorkers) batch_slopes_kernel(ImageRows images, BatchGradient p) {
  struct Values {
    double sum[kWorkers][kChannels], sum_x[kWorkers][kChannels];
  };
  Values& values = block_memory<Values>();
  const int64_t channel = static_cast<int64_t>(block_x()) * kChannels + thread_x();
  double sum = 0, sum_x = 0;
  if (channel < images.channels) {
    for (int part = thread_y(); part < images.parts; part += kWorkers) {
      const float* const from = p.partials + static_cast<int64_t>(part) * 2 * images.channels + channel;
      sum += static_cast<double>(from[0]);
      sum_x += static_cast<double>(from[images.channels]);
    }
  }
  values.sum[thread_y()][thread_x()] = sum;
  values.sum_x[thread_y()][thread_x()] = sum_x;
  __syncthreads();
  if (thread_y() != 0 || channel >= images.channels) return;
  for (int y = 1; y < kWorkers; ++y) {
    sum += values.sum[y][thread_x()];
    sum_x += values.sum_x[y][thread_x()];
  }
  const auto rstd = static_cast<double>(p.rstd[channel]);
  const double factor = static_cast<double>(p.scale[channel]) / static_cast<double>(images.rows);
  p.dbias[channel] = static_cast<float>(sum);
  p.dweight[channel] = static_cast<float>(sum_x * rstd);
  p.slope[channel] = static_cast<float>(-factor * sum_x * rstd * rstd);
  p.offset[channel] = static_cast<float>(-factor * sum);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kColumnThreads) batch_gradient_kernel(ImageRows images, BatchGradient p) {
  const ColumnWalk<kVector> walk(images.rows, images.channels);
  if (walk.column >= images.channels) return;
  float scale[kVector], shift[kVector], mean[kVector], slope[kVector], offset[kVector];
  load_floats(p.scale + walk.column, scale);
  load_floats(p.shift + walk.column, shift);
  load_floats(p.mean + walk.column, mean);
  load_floats(p.slope + walk.column, slope);
  load_floats(p.offset + walk.column, offset);
  for (int64_t row = walk.first; row < walk.end; row += walk.step) {
    const int64_t place = row * images.channels + walk.column;
    float x[kVector], g[kVector];
    load(static_cast<const T*>(p.x) + place, x);
    load_passed<T>(p, place, x, scale, shift, g);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) g[k] = g[k] * scale[k] + ((x[k] - mean[k]) * slope[k] + offset[k]);
    store(static_cast<T*>(p.dx) + place, g);
  }
}

/// Calls visit(a value of the type, elements per pack, grid).
template <class Visit, class... Pointers>
void with_grid(const ImageRows& images, const Visit& visit, Pointers... pointers) {
  with_type(images.element, [&](auto type) {
    constexpr int kVector = kPackOf<decltype(type)>;
    const bool packed = is_packed(images.channels, kVector, pointers...);
    const ColumnGrid grid = column_grid(images.channels, packed ? kVector : 1, images.parts);
    if (packed) return visit(type, Number<kVector>{}, grid);
    visit(type, Number<1>{}, grid);
  });
}

dim3 channel_blocks(const ImageRows& images) { return dim3{extent(divided_up(images.channels, kChannels)), 1, 1}; }

/// Computes the slopes from the sums of this many parts, then dx.
void finish_gradient(const ImageRows& images, int parts, const BatchGradient& p, Stream stream) {
  ImageRows summed = images;
  summed.parts = parts;
  launch(batch_slopes_kernel, channel_blocks(images), dim3{kChannels, kWorkers, 1}, stream, summed, p);
  with_grid(
      images,
      [&](auto type, auto vector, const ColumnGrid& grid) {
        launch(batch_gradient_kernel<decltype(type), decltype(vector)::value>, grid.blocks, grid.threads, stream,
               images, p);
      },
      p.dy, p.x, p.y, p.dx, p.mean, p.scale, p.shift, p.slope, p.offset);
}

}  // namespace

void batch_statistics(const ImageRows& images, const void* x, float* partials, Stream stream) {
  with_grid(
      images,
      [&](auto type, auto vector, const ColumnGrid& grid) {
        using T = decltype(type);
        launch(batch_statistics_kernel<T, decltype(vector)::value>, grid.blocks, grid.threads, stream, images,
               static_cast<const T*>(x), partials);
      },
      x, partials);
}

void batch_moments(const ImageRows& images, const BatchMoments& p, Stream stream) {
  launch(batch_moments_kernel, channel_blocks(images), dim3{kChannels, kWorkers, 1}, stream, images, p);
}

int64_t passed_bytes(const ImageRows& images, const BatchApply& p) {
  int64_t bytes = 0;
  with_type(images.element, [&](auto type) {
    constexpr int kVector = kPackOf<decltype(type)>;
    if (is_packed(images.channels, kVector, p.x, p.residual, p.y, p.scale, p.shift))
      bytes = images.rows * images.channels / kVector;
  });
  return bytes;
}

void batch_apply(const ImageRows& images, const BatchApply& p, Stream stream) {
  with_grid(
      images,
      [&](auto type, auto vector, const ColumnGrid& grid) {
        launch(batch_apply_kernel<decltype(type), decltype(vector)::value>, grid.blocks, grid.threads, stream, images,
               p);
      },
      p.x, p.residual, p.y, p.scale, p.shift);
}

void batch_gradient(const ImageRows& images, const BatchGradient& p, Stream stream) {
  with_grid(
      images,
      [&](auto type, auto vector, const ColumnGrid& grid) {
        launch(batch_sums_kernel<decltype(type), decltype(vector)::value>, grid.blocks, grid.threads, stream, images,
               p);
      },
      p.dy, p.x, p.y, p.dresidual, p.mean, p.scale, p.shift, p.partials);
  BatchGradient rest = p;
  if (p.dresidual != nullptr) {
    rest.dy = p.dresidual;
    rest.relu = false;
  }
  finish_gradient(images, images.parts, rest, stream);
}

void batch_gradient_of_sums(const ImageRows& images, const BatchGradient& p, Stream stream) {
  finish_gradient(images, 1, p, stream);
}

}  // namespace gputrain::ops::cuda
