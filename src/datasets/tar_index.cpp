#include "tar_index.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::datasets {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kReadAhead = 64 << 10;
constexpr int64_t kMostExtension = 1 << 20;  // bytes of a pax header or a long name
constexpr size_t kLongestName = 4096;

using Block = std::array<char, kBlock>;

struct Field {
  size_t at, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kPrefix{345, 155};
constexpr size_t kType = 156, kMagic = 257;

std::string_view text_of(const Block& block, Field field) {
  const std::string_view all(block.data() + field.at, field.length);
  return all.substr(0, all.find('\0'));
}

/// Parses an octal number, or a base-256 number if the first bit is set; empty if it is neither.
std::optional<int64_t> number_of(const Block& block, Field field) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(block[field.at + i]); };
  if (byte(0) & 0x80) {
    if (byte(0) != 0x80) return std::nullopt;  // negative, or beyond 2^88
    uint64_t value = 0;
    for (size_t i = 1; i < field.length; ++i) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | byte(i);
    }
    return static_cast<int64_t>(value);
  }
  std::string_view text = text_of(block, field);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  int64_t value = 0;
  if (text.empty()) return value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool checksum_fits(const Block& block) {
  const std::optional<int64_t> told = number_of(block, kChecksum);
  int64_t plain = 0, with_signs = 0;  // old programs summed signed chars
  for (size_t i = 0; i < block.size(); ++i) {
    const bool inside = i >= kChecksum.at && i < kChecksum.at + kChecksum.length;
    plain += inside ? ' ' : static_cast<unsigned char>(block[i]);
    with_signs += inside ? ' ' : static_cast<signed char>(block[i]);
  }
  return told && (*told == plain || *told == with_signs);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Attributes of the next entry from pax headers and GNU long names.
struct Extension {
  std::optional<std::string> name;
  std::optional<int64_t> size;
  bool sparse = false;
};

class TarReader {
 public:
  explicit TarReader(const data::ReadOnlyFile& file) : file_(file) {}

  void visit(const std::function<void(TarEntry&&)>& visitor) {
    Extension extension;
    while (const std::optional<Block> block = next_header()) {
      const char type = (*block)[kType];
      int64_t size = type == 'x' || !extension.size ? size_of(*block) : *extension.size;
      if (type >= '1' && type <= '6') size = 0;  // links, devices and folders have no content, despite the header
      const int64_t content = at_;
      skip(size);
      if (type == 'x') {
        read_pax(content, size, extension);
      } else if (type == 'L') {
        extension.name = read_text(content, size);
      } else if (type != 'g' && type != 'K' && type != 'V') {
        report(*block, std::exchange(extension, {}), content, size, visitor);
      }
    }
    refuse_second_archive();
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    throw Error(ExitCode::data,
                {.what = what + " (at byte " + std::to_string(at_) + ")", .where = file_.path(), .hint = hint});
  }

  /// Returns the next header; empty at the end of the archive, which is a block of zeros.
  std::optional<Block> next_header() {
    if (file_.size() - at_ < kBlock) {
      if (at_ == 0) refuse_other_file("too short for a tar archive");
      fail("the tar archive is cut off: its end mark is missing", "get or write the archive again");
    }
    const Block block = block_at(at_);
    if (std::all_of(block.begin(), block.end(), [](char c) { return c == 0; })) return std::nullopt;
    if (!checksum_fits(block)) {
      if (at_ == 0) refuse_other_file("not a tar archive");
      fail("damaged tar archive: a header's checksum is wrong");
    }
    at_ += kBlock;
    return block;
  }

  /// Refuses archives that `cat` has joined: tar stops at the first end mark too, so the rest would be lost.
  void refuse_second_archive() {
    constexpr int64_t kMostPadding = 1 << 20;  // most zeros with which tar fills its last record, usually of 10 KiB
    const int64_t end = std::min(file_.size(), at_ + kMostPadding) - kBlock;
    for (int64_t offset = at_; offset <= end; offset += kBlock) {
      const Block block = block_at(offset);
      if (std::all_of(block.begin(), block.end(), [](char c) { return c == 0; })) continue;
      if (!checksum_fits(block)) return;
      at_ = offset;
      fail("another archive follows the end mark of the first",
           "give each file by itself, or join with tar --concatenate");
    }
  }

  [[noreturn]] void refuse_other_file(const std::string& what) const {
    const FileKind kind = data::kind_of(file_);
    std::string hint(kind.remedy);
    const std::string name = std::filesystem::path(file_.path()).filename().string();
    if (kind.type == FileType::gzip && !name.ends_with(".gz") && !name.ends_with(".tgz"))  // gunzip refuses other names
      hint = "unpack it: mv " + name + " " + name + ".gz && gunzip " + name + ".gz";
    if (kind.type == FileType::gzip || kind.type == FileType::zstandard || kind.type == FileType::compressed)
      fail("this is a compressed archive; random reads need a plain tar", hint);
    fail(what + kind.it_is(), hint.empty() ? "get or write the archive again" : hint);
  }

  /// Returns a block. Reads ahead if the last header was near, because headers of small entries are close together.
  Block block_at(int64_t offset) {
    if (offset < ahead_from_ || offset + kBlock > ahead_from_ + std::ssize(ahead_)) {
      const bool is_near = offset - last_header_ < kReadAhead / 4;
      ahead_ = file_.read(offset, std::min(is_near ? kReadAhead : kBlock, file_.size() - offset));
      ahead_from_ = offset;
    }
    last_header_ = offset;
    Block block;
    std::memcpy(block.data(), ahead_.data() + (offset - ahead_from_), kBlock);
    return block;
  }

  int64_t size_of(const Block& block) const {
    const std::optional<int64_t> size = number_of(block, kSize);
    if (!size) fail("damaged tar archive: a header's size is not a number");
    return *size;
  }

  void skip(int64_t size) {
    if (size > file_.size() - at_)
      fail("the tar archive is cut off: an entry of " + std::to_string(size) + " bytes does not fit",
           "get or write the archive again");
    at_ += size;
    at_ += std::min((kBlock - size % kBlock) % kBlock, file_.size() - at_);
  }

  std::string read_text(int64_t offset, int64_t size) const {
    if (size > kMostExtension) fail("a tar header of " + std::to_string(size) + " bytes");
    std::string text(static_cast<size_t>(size), '\0');
    file_.read(offset, std::as_writable_bytes(std::span(text)));
    return text.substr(0, text.find('\0'));
  }

  /// Parses records "<length> <key>=<value>\n".
  void read_pax(int64_t offset, int64_t size, Extension& extension) const {
    const std::string all = read_text(offset, size);
    std::string_view left = all;
    while (!left.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), length);
      const auto digits = static_cast<size_t>(end - left.data());
      if (error != std::errc() || length < digits + 3 || length > left.size() || *end != ' ' ||
          left[length - 1] != '\n')
        fail("damaged tar archive: a pax header is not readable");
      const std::string_view record = left.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail("damaged tar archive: a pax header is not readable");
      take_record(record.substr(0, equals), record.substr(equals + 1), extension);
      left.remove_prefix(length);
    }
  }

  void take_record(std::string_view key, std::string_view value, Extension& extension) const {
    if (key == "path") extension.name = std::string(value);
    if (key.starts_with("GNU.sparse.")) extension.sparse = true;
    if (key != "size") return;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size() || size < 0)
      fail("damaged tar archive: a pax header's size is not a number");
    extension.size = size;
  }

  void report(const Block& block, Extension extension, int64_t content, int64_t size,
              const std::function<void(TarEntry&&)>& visitor) const {
    const char type = block[kType];
    if (type == 'S' || extension.sparse)
      fail("a sparse file in the tar archive", "write the archive again without --sparse");
    const bool is_file = type == '0' || type == '\0' || type == '7', is_link = type == '1' || type == '2';
    if (!is_file && !is_link && type != '5') return;
    TarEntry entry{.offset = content, .size = size, .is_link = is_link, .is_folder = type == '5'};
    if (extension.name) {
      entry.name = std::move(*extension.name);
    } else {
      const bool is_ustar = std::string_view(block.data() + kMagic, 6) == std::string_view("ustar\0", 6);
      const std::string_view prefix = is_ustar ? text_of(block, kPrefix) : std::string_view();
      entry.name = prefix.empty() ? std::string(text_of(block, kName))
                                  : std::string(prefix) + "/" + std::string(text_of(block, kName));
    }
    if (entry.name.size() > kLongestName)
      fail("a name of " + std::to_string(entry.name.size()) + " bytes in the archive");
    if (std::any_of(entry.name.begin(), entry.name.end(), is_control))
      fail("a name with control characters in the archive");
    while (entry.name.starts_with("./")) entry.name.erase(0, 2);
    if (entry.is_folder && !entry.name.ends_with('/')) entry.name += '/';
    visitor(std::move(entry));
  }

  const data::ReadOnlyFile& file_;
  int64_t at_ = 0;
  std::vector<std::byte> ahead_;
  int64_t ahead_from_ = 0, last_header_ = 0;
};

}  // namespace

void visit_tar(const data::ReadOnlyFile& file, const std::function<void(TarEntry&&)>& visit) {
  TarReader(file).visit(visit);
}

}  // namespace gputrain::datasets
