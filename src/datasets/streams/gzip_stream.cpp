#include "gzip_stream.hpp"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include <zlib.h>

#include "gputrain/core/error.hpp"

namespace gputrain::datasets {

struct GzipStream::State {
  z_stream stream{};
  ByteSource packed;
  std::string name;
  std::vector<std::byte> piece = std::vector<std::byte>(size_t{1} << 18);  // piece of the packed data
  bool has_all = false;                                                    // true: no piece follows
  bool ended = false;

  ~State() { inflateEnd(&stream); }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::data, {.what = what, .where = name, .hint = "get the file again; `gzip -t` checks it"});
  }

  void feed() {
    if (stream.avail_in > 0 || has_all) return;
    const size_t count = packed(piece);
    has_all = count < piece.size();
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(count);
  }

  /// Starts another member: a gzip file may hold several, one after another.
  void start_next_member() {
    feed();
    if (stream.avail_in == 0) {
      ended = true;
    } else if (inflateReset(&stream) != Z_OK) {
      fail("damaged gzip data");
    }
  }
};

GzipStream::GzipStream(ByteSource packed, std::string name) : state_(std::make_unique<State>()) {
  state_->packed = std::move(packed);
  state_->name = std::move(name);
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&state_->stream, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipStream::~GzipStream() = default;

size_t GzipStream::read(std::span<std::byte> to) {
  z_stream& stream = state_->stream;
  size_t done = 0;
  while (done < to.size() && !state_->ended) {
    state_->feed();
    const size_t room = std::min<size_t>(to.size() - done, UINT_MAX);
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      state_->start_next_member();
    } else if (result == Z_BUF_ERROR ||
               (result == Z_OK && stream.avail_in == 0 && state_->has_all && stream.avail_out > 0)) {
      state_->fail("the gzip data is cut off");
    } else if (result != Z_OK) {
      state_->fail("damaged gzip data");
    }
  }
  return done;
}

}  // namespace gputrain::datasets
