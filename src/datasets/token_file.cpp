#include "gputrain/datasets/token_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::datasets {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

// Header of llm.c, dev/data/data_common.py: 256 32-bit numbers, then the tokens.
constexpr int64_t kLlmcHeaderBytes = 256 * 4;
struct LlmcKind {
  int32_t magic, version;
  int bytes_per_token;
  int64_t vocabulary_size;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};

/// Other files of llm.c, which share the suffix .bin.
struct LlmcOther {
  int32_t magic;
  const char* what;
};
constexpr LlmcOther kLlmcOthers[] = {{20240326, "the weights of an llm.c model"},
                                     {20240327, "the debug state of an llm.c model"},
                                     {20240328, "the vocabulary of llm.c's tokenizer"},
                                     {20240522, "llm.c's file of an evaluation such as HellaSwag"},
                                     {20240527, "the optimizer state of an llm.c run"}};

// Magic of Megatron-LM, megatron/core/datasets/indexed_dataset.py.
constexpr char kMegatronMagic[] = "MMIDIDX\0";  // nine bytes with the final zero
constexpr int64_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;
struct MegatronType {
  uint8_t code;
  int bytes;
  bool is_signed;
};
constexpr MegatronType kMegatronTypes[] = {{1, 1, false}, {2, 1, true}, {3, 2, true},
                                           {4, 4, true},  {5, 8, true}, {8, 2, false}};

[[noreturn]] void fail(const std::string& path, const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::data, {.what = what, .where = path, .hint = hint});
}

template <class Value>
Value value_at(const data::ReadOnlyFile& file, int64_t offset) {
  Value value;
  file.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

template <class Stored>
void widen(std::span<const std::byte> raw, std::span<int64_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    Stored value;
    std::memcpy(&value, raw.data() + i * sizeof(Stored), sizeof(Stored));
    tokens[i] = value;
  }
}

/// Refuses what is clearly something else, because any even number of bytes could be tokens. A mark of UTF-16 is no
/// proof: it is also a token.
void refuse_other_kinds(const data::ReadOnlyFile& file, const std::string& path) {
  constexpr int64_t kFewestOfText = 64;
  const FileKind kind = data::kind_of(file);
  if (kind.type == FileType::unknown || kind.type == FileType::utf16_text) return;
  if (kind.type == FileType::text && file.size() < kFewestOfText) return;
  std::string hint(kind.remedy);
  if (kind.type == FileType::text) hint = "format: text";
  if (kind.type == FileType::numpy)
    hint = "numpy.load(FILE).astype(\"uint32\").tofile(\"tokens.bin\"), and dtype: uint32";
  if (kind.type == FileType::megatron_index)
    hint = "path: " + std::filesystem::path(path).replace_extension(".bin").string();
  fail(path, std::string(kind.name) + ", not token ids", hint);
}

/// Refuses files of llm.c that are not tokens, or not in this machine's byte order.
void refuse_llmc_file_of_another_kind(int32_t magic, const std::string& path) {
  for (const LlmcOther& other : kLlmcOthers) {
    if (magic == other.magic) fail(path, std::string(other.what) + ", not token ids");
  }
  const auto swapped = static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(magic)));
  for (const LlmcKind& kind : kLlmcKinds) {
    if (swapped == kind.magic)
      fail(path, "an llm.c token file with big-endian numbers",
           "make it again on a little-endian machine, or swap the bytes of all its numbers");
  }
}

/// Returns whether these are parts of wider numbers: only those at multiples of `step` are large, as the others are the
/// upper parts of token ids.
bool are_upper_parts(std::span<const int64_t> numbers, size_t step) {
  constexpr int64_t kHighestUpperHalf = 15;  // maximum for tokens below a million
  int64_t upper = 0, lower = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    int64_t& highest = i % step == 0 ? lower : upper;
    highest = std::max(highest, numbers[i]);
  }
  return upper <= kHighestUpperHalf && lower > 16 * upper;
}

/// Returns whether the bits are those of a whole number from 0 on.
bool is_whole_float(int64_t bits, int exponent_bits, int mantissa_bits) {
  constexpr int64_t kHighestPower = 23;  // maximum for token ids
  const int64_t bias = (int64_t{1} << (exponent_bits - 1)) - 1, power = (bits >> mantissa_bits) - bias;
  if (bits == 0) return true;
  if (power < 0 || power > std::min(bias, kHighestPower)) return false;
  return power >= mantissa_bits || (bits & ((int64_t{1} << (mantissa_bits - power)) - 1)) == 0;
}

std::string conversion(const std::string& from, const std::string& to) {
  return "numpy.fromfile(FILE, \"" + from + "\").astype(\"" + to + "\").tofile(NEW) converts it";
}

/// Finds floating-point numbers, which all happen to be whole, and bytes that are ids below 128. Takes the file as
/// 16-bit numbers.
std::string doubt_about_type(std::span<const int64_t> halves) {
  const std::string then = "; then set dtype: uint32 beside `format: tokens`";
  bool are_float16 = true, are_float32 = true;
  int64_t upper = 0, lower = 0;  // highest bytes
  for (size_t i = 0; i < halves.size(); ++i) {
    are_float16 = are_float16 && is_whole_float(halves[i], 5, 10);
    if (i % 2 == 1) are_float32 = are_float32 && is_whole_float(halves[i] << 16 | halves[i - 1], 8, 23);
    upper = std::max(upper, halves[i] >> 8);
    lower = std::max(lower, halves[i] & 255);
  }
  const std::string whole = "-bit floating-point numbers, because as such they are all whole. If it is one, ";
  if (are_float32) return "looks like a file of 32" + whole + conversion("float32", "uint32") + then;
  if (are_float16) return "looks like a file of 16" + whole + conversion("float16", "uint32") + then;
  if (std::max(upper, lower) > 127 || std::min(upper, lower) <= std::max(upper, lower) / 2) return {};
  return "looks like a file of 8-bit numbers, because all its bytes are below 128. If it is one, " +
         conversion("uint8", "uint16");
}

std::string doubt_about_width(int bytes) {
  const std::string first = bytes == 4 ? "" : conversion("int64", "uint32") + "; then ";
  return "looks like a file of " + std::to_string(8 * bytes) +
         "-bit numbers, because nearly all upper halves are 0, which are read as tokens. If it is one, " + first +
         "set dtype: uint32 beside `format: tokens`";
}

}  // namespace

std::string token_file_header(int bytes_per_token, int64_t tokens) {
  constexpr int64_t kMostTokens = INT32_MAX;
  const LlmcKind& kind = bytes_per_token == 2 ? kLlmcKinds[0] : kLlmcKinds[1];
  if (tokens > kMostTokens)
    throw Error(ExitCode::data,
                {.what = "more than " + grouped(kMostTokens) + " tokens do not fit into one file of llm.c's format",
                 .hint = "make several files from parts of the text, and name their folder in the job"});
  std::string header(static_cast<size_t>(kLlmcHeaderBytes), '\0');
  const int32_t fields[] = {kind.magic, kind.version, static_cast<int32_t>(tokens)};
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

TokenFile::TokenFile(const std::string& path, const std::string& raw_type) : file_(path) { read_header(raw_type); }

void TokenFile::read_header(const std::string& raw_type) {
  refuse_other_kinds(file_, path());
  const std::string index = std::filesystem::path(path()).replace_extension(".idx").string();
  std::error_code ignored;
  if (index != path() && std::filesystem::exists(index, ignored)) return read_megatron_index(index);
  if (read_llmc_header()) return;
  raw_ = true;
  bytes_per_token_ = raw_type == "uint32" ? 4 : 2;
  if (file_.size() % bytes_per_token_ != 0)
    fail(path(), std::to_string(file_.size()) + " bytes are not a whole number of " + raw_type + " tokens");
  count_ = file_.size() / bytes_per_token_;
}

/// Returns false if this is not a file of llm.c.
bool TokenFile::read_llmc_header() {
  if (file_.size() < 4) return false;
  const auto magic = value_at<int32_t>(file_, 0);
  const auto* kind = std::find_if(std::begin(kLlmcKinds), std::end(kLlmcKinds),
                                  [magic](const LlmcKind& known) { return known.magic == magic; });
  if (kind == std::end(kLlmcKinds)) {
    refuse_llmc_file_of_another_kind(magic, path());
    return false;
  }
  if (file_.size() < kLlmcHeaderBytes) fail(path(), "cut off inside llm.c's header of 1024 bytes");
  const auto version = value_at<int32_t>(file_, 4);
  if (version != kind->version)
    fail(path(), "an llm.c token file of version " + std::to_string(version) + "; only version " +
                     std::to_string(kind->version) + " is supported");
  first_byte_ = kLlmcHeaderBytes;
  bytes_per_token_ = kind->bytes_per_token;
  vocabulary_size_ = kind->vocabulary_size;
  count_ = value_at<uint32_t>(file_, 8);
  if (file_.size() != first_byte_ + count_ * bytes_per_token_)
    fail(path(), "its header declares " + std::to_string(count_) + " tokens, but the file holds " +
                     std::to_string((file_.size() - first_byte_) / bytes_per_token_));
  return true;
}

std::string TokenFile::doubt() const {
  constexpr int64_t kFewest = 64, kMost = 4096;
  if (count_ == 0) return "has no tokens. Is it complete?";
  if (!raw_ || count_ < kFewest) return {};
  std::vector<int64_t> numbers(static_cast<size_t>(std::min(kMost, count_)));
  read(0, numbers);
  const std::string begins = "begins with " + grouped(std::ssize(numbers)) + " tokens that are all ";
  if (std::ranges::all_of(numbers, [&](int64_t number) { return number == numbers.front(); }))
    return begins + std::to_string(numbers.front()) + ". Is it complete?";
  std::vector<int64_t> halves;
  for (const int64_t number : numbers) {
    halves.push_back(number & 0xffff);
    if (bytes_per_token_ == 4) halves.push_back(number >> 16);
  }
  if (std::string doubt = doubt_about_type(halves); !doubt.empty()) return doubt;
  if (std::ranges::all_of(numbers, [](int64_t number) { return number % 256 == 0; }))
    return begins + "multiples of 256, as if its numbers were big-endian. If they are, swap their bytes";
  if (bytes_per_token_ == 2 && are_upper_parts(numbers, 4)) return doubt_about_width(8);
  return are_upper_parts(numbers, 2) ? doubt_about_width(2 * bytes_per_token_) : "";
}

void TokenFile::read_megatron_index(const std::string& index_path) {
  const data::ReadOnlyFile index(index_path);
  if (index.size() < kMegatronHeaderBytes) fail(index_path, "too short for the header of a Megatron index");
  char magic[9];
  index.read(0, std::as_writable_bytes(std::span(magic)));
  if (std::memcmp(magic, kMegatronMagic, sizeof(magic)) != 0)
    fail(index_path, "not a Megatron index: it does not begin with MMIDIDX" + data::kind_of(index).it_is());
  if (const auto version = value_at<uint64_t>(index, 9); version != 1)
    fail(index_path, "version " + std::to_string(version) + " of a Megatron index; only version 1 is supported");
  const auto code = value_at<uint8_t>(index, 17);
  const auto* type = std::find_if(std::begin(kMegatronTypes), std::end(kMegatronTypes),
                                  [code](const MegatronType& known) { return known.code == code; });
  if (type == std::end(kMegatronTypes))
    fail(index_path, "its tokens are of type " + std::to_string(code) + ", which is not an integer");
  bytes_per_token_ = type->bytes;
  signed_ = type->is_signed;

  const auto sequences = value_at<uint64_t>(index, 18), documents = value_at<uint64_t>(index, 26);
  const auto room = static_cast<uint64_t>(index.size() - kMegatronHeaderBytes);
  if (sequences > room / 12 || documents > (room - sequences * 12) / 8)
    fail(index_path, "cut off: it declares " + std::to_string(sequences) + " sequences and " +
                         std::to_string(documents) + " documents");
  std::vector<int32_t> lengths(sequences);
  std::vector<int64_t> places(sequences);
  index.read(kMegatronHeaderBytes, std::as_writable_bytes(std::span(lengths)));
  index.read(kMegatronHeaderBytes + static_cast<int64_t>(sequences) * 4, std::as_writable_bytes(std::span(places)));
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) fail(index_path, "sequence " + std::to_string(i) + " has a negative length");
    if (places[i] != count_ * bytes_per_token_)
      fail(index_path, "sequence " + std::to_string(i) + " does not follow the one before it",
           "write the data again with Megatron's preprocess_data.py");
    count_ += lengths[i];
  }
  if (file_.size() != count_ * bytes_per_token_)
    fail(path(), "its index declares " + std::to_string(count_) + " tokens, but the file holds " +
                     std::to_string(file_.size() / bytes_per_token_));
}

void TokenFile::read(int64_t first, std::span<int64_t> tokens) const {
  thread_local std::vector<std::byte> raw;
  raw.resize(tokens.size() * static_cast<size_t>(bytes_per_token_));
  file_.read(first_byte_ + first * bytes_per_token_, raw);
  switch (bytes_per_token_ * (signed_ ? -1 : 1)) {
    case 1:
      return widen<uint8_t>(raw, tokens);
    case 2:
      return widen<uint16_t>(raw, tokens);
    case 4:
      return widen<uint32_t>(raw, tokens);
    case -1:
      return widen<int8_t>(raw, tokens);
    case -2:
      return widen<int16_t>(raw, tokens);
    case -4:
      return widen<int32_t>(raw, tokens);
    default:
      return widen<int64_t>(raw, tokens);
  }
}

}  // namespace gputrain::datasets
