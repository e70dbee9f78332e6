#include "idx_file.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "streams/byte_source.hpp"
#include "streams/gzip_stream.hpp"

namespace gputrain::datasets {
namespace {

constexpr uint32_t kUnsignedBytes = 0x08;
constexpr size_t kMostDimensions = 3;

using Header = std::array<std::byte, 4 + 4 * kMostDimensions>;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error(ExitCode::data, {.what = what, .where = name});
}

uint32_t big_endian(const std::byte* at) {
  return std::to_integer<uint32_t>(at[0]) << 24 | std::to_integer<uint32_t>(at[1]) << 16 |
         std::to_integer<uint32_t>(at[2]) << 8 | std::to_integer<uint32_t>(at[3]);
}

std::string hexadecimal(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", value);
  return text;
}

/// Returns the sizes in a header; throws unless it declares `dimensions` dimensions of unsigned bytes.
std::vector<int64_t> parse_header(std::span<const std::byte> header, size_t dimensions, const std::string& name) {
  const uint32_t magic = big_endian(header.data());
  const uint32_t wanted = kUnsignedBytes << 8 | static_cast<uint32_t>(dimensions);
  if (magic == (kUnsignedBytes << 8 | static_cast<uint32_t>(4 - dimensions)))  // labels have one, images three
    throw Error(ExitCode::data, {.what = dimensions == 1 ? "a file of images in the place of labels"
                                                         : "a file of labels in the place of images",
                                 .where = name,
                                 .hint = "check the names: the files of images and labels may be swapped"});
  if (magic != wanted)
    fail(name, "not an IDX file of " + std::to_string(dimensions) + "-dimensional unsigned bytes: it begins with " +
                   hexadecimal(magic) + " instead of " + hexadecimal(wanted));
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < dimensions; ++d) sizes.push_back(big_endian(header.data() + 4 + 4 * d));
  return sizes;
}

/// Returns the product of the sizes; throws if it exceeds `available` bytes.
int64_t count_values(const std::vector<int64_t>& sizes, int64_t available, const std::string& name) {
  int64_t count = 1;
  std::string shape;
  bool too_many = false;
  for (const int64_t size : sizes) {
    shape += (shape.empty() ? "" : " x ") + std::to_string(size);
    if (size == 0) fail(name, "holds no values: its header has a size of 0");
    too_many = too_many || count > available / size;
    if (!too_many) count *= size;
  }
  if (too_many) fail(name, "cut off: its header declares " + shape + " values, more than the file can hold");
  return count;
}

/// Reads header and values. `read` fills a span as far as it can; `most` is the maximum number of values.
template <class Read>
IdxArray parse(Read&& read, int64_t most, size_t dimensions, const std::string& name) {
  Header header{};
  const auto used = std::span(header).first(4 + 4 * dimensions);
  if (read(used) != used.size()) fail(name, "too short for the header of an IDX file");
  IdxArray array{.sizes = parse_header(used, dimensions, name)};
  array.count = count_values(array.sizes, most, name);
  const auto count = static_cast<size_t>(array.count);
  // Uninitialised: memory that a false header asks for is never touched.
  array.values = std::make_unique_for_overwrite<uint8_t[]>(count);
  const size_t got = read(std::as_writable_bytes(std::span(array.values.get(), count)));
  if (got != count) fail(name, "cut off: " + std::to_string(count - got) + " bytes are missing at its end");
  std::byte extra{};
  if (read(std::span(&extra, 1)) != 0) fail(name, "has extra bytes after the values that its header declares");
  return array;
}

}  // namespace

IdxArray read_idx_file(const std::string& path, size_t dimensions) {
  const auto file = std::make_shared<const data::ReadOnlyFile>(path);
  const FileKind kind = data::kind_of(*file);
  if (kind.type == FileType::gzip) {
    GzipStream stream(bytes_of(file), path);
    return parse([&](std::span<std::byte> to) { return stream.read(to); }, file->size() * kMostGzipGain, dimensions,
                 path);
  }
  if (kind.type != FileType::unknown)
    throw Error(
        ExitCode::data,
        {.what = std::string(kind.name) + ", not an IDX file", .where = path, .hint = std::string(kind.remedy)});
  return parse(bytes_of(file), file->size(), dimensions, path);
}

}  // namespace gputrain::datasets
