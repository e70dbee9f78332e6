#include "zstd_stream.hpp"

#include <new>
#include <utility>
#include <vector>

#include <zstd.h>

#include "gputrain/core/error.hpp"

namespace gputrain::datasets {

struct ZstdStream::State {
  ByteSource packed;
  std::string name;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream{ZSTD_createDStream(), &ZSTD_freeDStream};
  std::vector<std::byte> piece = std::vector<std::byte>(ZSTD_DStreamInSize());  // piece of the packed data
  ZSTD_inBuffer in{.src = piece.data(), .size = 0, .pos = 0};
  bool has_all = false;      // true: no piece follows
  bool is_in_frame = false;  // false between frames; a file may hold several

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::data, {.what = what, .where = name, .hint = "get the file again; `zstd -t` checks it"});
  }

  void feed() {
    if (in.pos < in.size || has_all) return;
    in.size = packed(piece);
    in.pos = 0;
    has_all = in.size < piece.size();
  }
};

ZstdStream::ZstdStream(ByteSource packed, std::string name) : state_(std::make_unique<State>()) {
  if (state_->stream == nullptr) throw std::bad_alloc();
  state_->packed = std::move(packed);
  state_->name = std::move(name);
}

ZstdStream::~ZstdStream() = default;

size_t ZstdStream::read(std::span<std::byte> to) {
  State& state = *state_;
  ZSTD_outBuffer out{.dst = to.data(), .size = to.size(), .pos = 0};
  while (out.pos < out.size) {
    state.feed();
    const bool is_at_end = state.in.pos == state.in.size;
    if (is_at_end && !state.is_in_frame) break;
    const size_t before = out.pos;
    const size_t result = ZSTD_decompressStream(state.stream.get(), &out, &state.in);
    if (ZSTD_isError(result) != 0) state.fail("damaged Zstandard data: " + std::string(ZSTD_getErrorName(result)));
    if (is_at_end && out.pos == before) state.fail("the Zstandard data is cut off");
    state.is_in_frame = result != 0;
  }
  return out.pos;
}

}  // namespace gputrain::datasets
