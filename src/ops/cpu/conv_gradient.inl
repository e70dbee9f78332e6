// Gradient of a convolution's weight: for each tap of the kernel, the product of two tall matrices, dw[out, in] = sum
// over pixels of dy[pixel, out] x[pixel under the tap, in]. Each block of pixels is copied into panels as wide as the
// register tile. x is copied with its zero padding, so that every tap reads the same panel at another offset (K. Goto,
// R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, but all taps share one copy).

namespace gputrain::ops::cpu {
namespace {

// Register tile of sums: with AVX2 12 of 16 registers, plus two for x and one for dy.
constexpr int64_t kTileOut = 6, kTileIn = 16, kTile = kTileOut * kTileIn;
constexpr int64_t kBlockPixels = 512;  // a panel of x fits the L1 cache, the block fits the L2 cache

typedef float Vector __attribute__((vector_size(32), may_alias));
constexpr int64_t kLanes = 8;

inline int64_t at_least_one(int64_t value) { return value < 1 ? 1 : value; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct ConvBlocks {
  explicit ConvBlocks(const ConvGradient& conv)
      : rows(at_least_one(smaller(kBlockPixels / conv.out_width, conv.out_height))),
        images(rows < conv.out_height
                   ? 1
                   : at_least_one(smaller(kBlockPixels / (conv.out_height * conv.out_width), conv.images))),
        in_rows((rows - 1) * conv.stride + conv.kernel),
        in_width((conv.out_width - 1) * conv.stride + conv.kernel),
        in_panels((conv.in_channels + kTileIn - 1) / kTileIn),
        out_panels((conv.out_channels + kTileOut - 1) / kTileOut),
        taps(conv.kernel * conv.kernel),
        x_panel(images * in_rows * in_width * kTileIn),
        dy_panel(images * rows * conv.out_width * kTileOut) {}

  int64_t tiles() const { return in_panels * taps * out_panels; }

  // A block has some rows of one image, or whole images.
  int64_t rows, images;
  int64_t in_rows, in_width;  // of one image's part of the block, with padding
  int64_t in_panels, out_panels, taps;
  int64_t x_panel, dy_panel;  // floats
};

// Offsets of the workspace's parts, in floats. All panels but dy's begin at a cache line.
struct ConvWorkspace {
  explicit ConvWorkspace(const ConvBlocks& blocks)
      : x(blocks.tiles() * kTile),
        dy(x + blocks.in_panels * blocks.x_panel),
        end(dy + blocks.out_panels * blocks.dy_panel) {}

  int64_t sums = 0;  // [in_panels, taps, out_panels, kTileOut, kTileIn]
  int64_t x;         // [in_panels, images, in_rows, in_width, kTileIn]
  int64_t dy;        // [out_panels, images, rows, out_width, kTileOut]
  int64_t end;
};

int64_t conv_gradient_workspace(const ConvGradient& conv) { return ConvWorkspace(ConvBlocks(conv)).end; }

/// The images and rows of one block.
struct ConvPart {
  int64_t image, images, row, rows;
};

/// Copies one line of x, or zeros if the line is padding.
inline void pack_x_line(const ConvGradient& conv, const ConvBlocks& blocks, const ConvPart& part, int64_t image,
                        int64_t line, float* panels) {
  const int64_t row = part.row * conv.stride - conv.padding + line;
  const bool is_padding = row < 0 || row >= conv.in_height;
  const float* __restrict from =
      conv.x + ((part.image + image) * conv.in_height + (is_padding ? 0 : row)) * conv.in_width * conv.in_channels;
  float* __restrict to = panels + (image * blocks.in_rows + line) * blocks.in_width * kTileIn;
  for (int64_t column = 0; column < blocks.in_width; ++column) {
    const int64_t in_column = column - conv.padding;
    const bool is_zero = is_padding || in_column < 0 || in_column >= conv.in_width;
    for (int64_t panel = 0; panel < blocks.in_panels; ++panel) {
      const int64_t first = panel * kTileIn;
      const int64_t count = is_zero ? 0 : smaller(kTileIn, conv.in_channels - first);
      float* __restrict place = to + panel * blocks.x_panel + column * kTileIn;
      if (count == kTileIn) {
        __builtin_memcpy(place, from + in_column * conv.in_channels + first, kTileIn * sizeof(float));
      } else {
        for (int64_t i = 0; i < kTileIn; ++i) place[i] = i < count ? from[in_column * conv.in_channels + first + i] : 0;
      }
    }
  }
}

inline void pack_dy_row(const ConvGradient& conv, const ConvBlocks& blocks, const ConvPart& part, int64_t row,
                        float* panels) {
  const int64_t first_row = part.image * conv.out_height + part.row;  // rows of whole images are consecutive
  for (int64_t column = 0; column < conv.out_width; ++column) {
    const float* __restrict from = conv.dy + ((first_row + row) * conv.out_width + column) * conv.out_channels;
    float* __restrict to = panels + (row * conv.out_width + column) * kTileOut;
    const int64_t whole = conv.out_channels / kTileOut;
    for (int64_t panel = 0; panel < whole; ++panel) {
      __builtin_memcpy(to + panel * blocks.dy_panel, from + panel * kTileOut, kTileOut * sizeof(float));
    }
    for (int64_t i = whole * kTileOut; i < blocks.out_panels * kTileOut; ++i) {
      to[whole * blocks.dy_panel + i % kTileOut] = i < conv.out_channels ? from[i] : 0;
    }
  }
}

/// Adds a block's products to a tile. x: the block's first pixel under the tap.
inline void add_to_tile(const ConvGradient& conv, const ConvBlocks& blocks, const ConvPart& part,
                        const float* __restrict dy, const float* __restrict x, float* __restrict tile) {
  const int64_t step = conv.stride * kTileIn, row_step = conv.stride * blocks.in_width * kTileIn;
  Vector sums[kTileOut][2] = {};
  for (int64_t image = 0; image < part.images; ++image) {
    for (int64_t row = 0; row < part.rows; ++row) {
      const float* __restrict pixel = x + image * blocks.in_rows * blocks.in_width * kTileIn + row * row_step;
      for (int64_t column = 0; column < conv.out_width; ++column) {
        const Vector low = *reinterpret_cast<const Vector*>(pixel);
        const Vector high = *reinterpret_cast<const Vector*>(pixel + kLanes);
#pragma GCC unroll 6
        for (int64_t i = 0; i < kTileOut; ++i) {
          sums[i][0] += dy[i] * low;
          sums[i][1] += dy[i] * high;
        }
        dy += kTileOut;
        pixel += step;
      }
    }
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kTileOut; ++i) {
    *reinterpret_cast<Vector*>(tile + i * kTileIn) += sums[i][0];
    *reinterpret_cast<Vector*>(tile + i * kTileIn + kLanes) += sums[i][1];
  }
}

/// Writes a panel's tiles into dw.
inline void write_tiles(const ConvGradient& conv, const ConvBlocks& blocks, const float* sums, int64_t out_panel,
                        float* dw) {
  for (int64_t tap = 0; tap < blocks.taps; ++tap) {
    for (int64_t in_panel = 0; in_panel < blocks.in_panels; ++in_panel) {
      const int64_t out = out_panel * kTileOut, in = in_panel * kTileIn;
      const float* __restrict tile = sums + ((in_panel * blocks.taps + tap) * blocks.out_panels + out_panel) * kTile;
      for (int64_t i = 0; i < smaller(kTileOut, conv.out_channels - out); ++i) {
        float* __restrict to = dw + ((out + i) * blocks.taps + tap) * conv.in_channels + in;
        for (int64_t j = 0; j < smaller(kTileIn, conv.in_channels - in); ++j) to[j] = tile[i * kTileIn + j];
      }
    }
  }
}

void conv_weight_gradient(int threads, const ConvGradient& conv, float* workspace, float* dw) {
  const ConvBlocks blocks(conv);
  const ConvWorkspace places(blocks);
  float* const sums = workspace + places.sums;
  float* const x = workspace + places.x;
  float* const dy = workspace + places.dy;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks.tiles() * kTile; ++i) sums[i] = 0;
    for (int64_t image = 0; image < conv.images; image += blocks.images) {
      for (int64_t row = 0; row < conv.out_height; row += blocks.rows) {
        const ConvPart part{.image = image,
                            .images = smaller(blocks.images, conv.images - image),
                            .row = row,
                            .rows = smaller(blocks.rows, conv.out_height - row)};
        const int64_t lines = (part.rows - 1) * conv.stride + conv.kernel;
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < part.images * lines; ++i) pack_x_line(conv, blocks, part, i / lines, i % lines, x);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < part.images * part.rows; ++i) pack_dy_row(conv, blocks, part, i, dy);
#pragma omp for schedule(static)
        for (int64_t tile = 0; tile < blocks.tiles(); ++tile) {
          const int64_t out_panel = tile % blocks.out_panels, tap = tile / blocks.out_panels % blocks.taps,
                        in_panel = tile / blocks.out_panels / blocks.taps;
          const int64_t under_tap = (tap / conv.kernel * blocks.in_width + tap % conv.kernel) * kTileIn;
          add_to_tile(conv, blocks, part, dy + out_panel * blocks.dy_panel, x + in_panel * blocks.x_panel + under_tap,
                      sums + tile * kTile);
        }
      }
    }
#pragma omp for schedule(static)
    for (int64_t panel = 0; panel < blocks.out_panels; ++panel) write_tiles(conv, blocks, sums, panel, dw);
  }
}

}  // namespace
}  // namespace gputrain::ops::cpu
