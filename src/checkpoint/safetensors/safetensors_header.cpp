#include "gputrain/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "../not_weights.hpp"
#include "gputrain/core/file_kind.hpp"

namespace gputrain::checkpoint {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

struct StoredType {
  std::string_view name;
  uint64_t bytes;
};

// In the order of the reference implementation, which sorts tensors by it.
constexpr std::array<StoredType, 15> kTypes{{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"F64", 8},
                                             {"I64", 8},
                                             {"U64", 8}}};

auto find_type(std::string_view name) noexcept {
  return std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& type) { return type.name == name; });
}

/// Makes a name from a file safe for a terminal: quoted, short, no control characters.
std::string shown(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string text = "'" + std::string(name.substr(0, kLongest));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text + (name.size() > kLongest ? "...'" : "'");
}

/// Returns the number of elements; nothing if the sizes overflow. A size of 0 counts as 1 in the overflow test, because
/// strides are products of the other sizes.
std::optional<uint64_t> numel_of(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : sizes) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) return std::nullopt;
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

/// Parses the header's JSON as a stream of events and accepts only the three levels of the format, so that depth, sizes
/// and types are bounded before anything is stored.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& problem() const noexcept { return problem_; }
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (state_) {
      case State::outside:
        state_ = State::root;
        return true;
      case State::entry:
        state_ = is_metadata_ ? State::metadata : State::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    switch (state_) {
      case State::root:
        return start_entry(name);
      case State::metadata:
        field_ = name;
        return true;
      default:
        return start_field(name);
    }
  }

  bool end_object() override {
    if (state_ == State::tensor && !finish_tensor()) return false;
    state_ = state_ == State::root ? State::outside : State::root;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::tensor || field_ == "dtype") return unexpected("a list");
    state_ = field_ == "shape" ? State::shape : State::offsets;
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool string(std::string& text) override {
    if (state_ == State::metadata) {
      if (!header_.metadata.emplace(field_, text).second)
        return fail("metadata key " + shown(field_) + " occurs twice");
      return true;
    }
    if (state_ != State::tensor || field_ != "dtype") return unexpected("a string");
    tensor_.dtype = text;
    return true;
  }

  bool number_unsigned(uint64_t number) override {
    if (state_ == State::shape) return add_size(number);
    if (state_ != State::offsets) return unexpected("a number");
    if (offsets_.size() == 2) return fail("data_offsets of " + shown(tensor_.name) + " is not [begin, end]");
    offsets_.push_back(number);
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(int64_t) override { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { return unexpected("a number that is no 64-bit count"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail("the header is not valid JSON in UTF-8 at its byte " + std::to_string(position));
  }

 private:
  enum class State { outside, root, entry, metadata, tensor, shape, offsets };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool unexpected(const std::string& what) {
    return fail("the header has " + what + " in a wrong place" +
                (tensor_.name.empty() ? "" : " near tensor " + shown(tensor_.name)));
  }

  bool start_entry(const std::string& name) {
    if (!names_.insert(name).second) return fail("the header names " + shown(name) + " twice");
    is_metadata_ = name == kMetadata;
    if (!is_metadata_) tensor_ = {.name = name};
    offsets_.clear();
    seen_.clear();
    state_ = State::entry;
    return true;
  }

  bool start_field(const std::string& name) {
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail("tensor " + shown(tensor_.name) + " has an unknown field " + shown(name));
    }
    if (!seen_.insert(name).second) return fail("tensor " + shown(tensor_.name) + " has " + name + " twice");
    field_ = name;
    return true;
  }

  bool add_size(uint64_t size) {
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return unexpected("a huge size");
    if (tensor_.sizes.size() == kMaxDims) return fail("tensor " + shown(tensor_.name) + " has more than 64 dimensions");
    tensor_.sizes.push_back(static_cast<int64_t>(size));
    return true;
  }

  bool finish_tensor() {
    const std::string name = shown(tensor_.name);
    if (seen_.size() != 3) return fail("tensor " + name + " lacks dtype, shape or data_offsets");
    const uint64_t item = item_bytes(tensor_.dtype);
    if (item == 0) return fail("tensor " + name + " has dtype " + shown(tensor_.dtype) + ", which is not supported");
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
      return fail("data_offsets of " + name + " is not [begin, end]");
    const std::optional<uint64_t> numel = numel_of(tensor_.sizes);
    uint64_t bytes = 0;
    if (!numel || __builtin_mul_overflow(*numel, item, &bytes)) return fail("the shape of " + name + " is too large");
    if (offsets_[1] - offsets_[0] != bytes) {
      return fail("tensor " + name + " needs " + std::to_string(bytes) + " bytes by its shape, data_offsets gives it " +
                  std::to_string(offsets_[1] - offsets_[0]));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_.tensors.push_back(std::move(tensor_));
    tensor_ = {};
    return true;
  }

  State state_ = State::outside;
  SafetensorsHeader header_;
  std::set<std::string> names_, seen_;  // entry names of the file; fields of the current tensor
  StoredTensor tensor_;
  std::vector<uint64_t> offsets_;
  std::string field_, problem_;
  bool is_metadata_ = false;
};

/// Sorts by position and checks that the tensors cover [0, data_bytes) without holes or overlaps.
std::string arrange(std::vector<StoredTensor>& tensors, uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t reached = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < reached) return "tensor " + shown(tensor.name) + " overlaps the one before it";
    if (tensor.begin > reached) return "there is a hole before tensor " + shown(tensor.name);
    if (tensor.end > data_bytes) return "the file is cut off inside tensor " + shown(tensor.name);
    reached = tensor.end;
  }
  if (reached != data_bytes) return std::to_string(data_bytes - reached) + " bytes follow the last tensor";
  return {};
}

/// Returns the length of the header: the first 8 bytes, little-endian.
uint64_t length_in(std::string_view front) noexcept {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(front[i]);
  return length;
}

}  // namespace

uint64_t item_bytes(std::string_view dtype) noexcept {
  const auto found = find_type(dtype);
  return found == kTypes.end() ? 0 : found->bytes;
}

uint64_t front_bytes(std::string_view front, uint64_t file_bytes) noexcept {
  if (front.size() < kLengthBytes) return std::min(kLengthBytes, file_bytes);
  const uint64_t header_bytes = length_in(front);
  if (header_bytes > kMaxHeaderBytes) return std::min<uint64_t>(kFileKindBytes, file_bytes);  // enough to name its kind
  return std::min(kLengthBytes + header_bytes, file_bytes);
}

SafetensorsHeader parse_safetensors(std::string_view front, uint64_t file_bytes, const std::string& where,
                                    ExitCode code) {
  const auto refuse = [&, begin = front](const std::string& problem) {
    const NotWeights other = not_weights(begin);
    const std::string what = other.what.empty() ? ": " + problem : " but " + other.what;
    throw Error(code, {.what = "not a safetensors file" + what, .where = where, .hint = other.hint});
  };
  if (file_bytes < kLengthBytes || front.size() < kLengthBytes) {
    refuse("it has only " + std::to_string(file_bytes) + " bytes");
  }
  const uint64_t header_bytes = length_in(front);
  if (header_bytes > kMaxHeaderBytes) refuse("its header would be over 100 MB");
  front.remove_prefix(kLengthBytes);
  if (header_bytes > front.size()) refuse("it is cut off inside the header");

  const std::string_view json = front.substr(0, header_bytes);
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) refuse(reader.problem());
  SafetensorsHeader header = reader.take();
  const std::string problem = arrange(header.tensors, file_bytes - kLengthBytes - header_bytes);
  if (!problem.empty()) refuse(problem);
  for (StoredTensor& tensor : header.tensors) {
    tensor.begin += kLengthBytes + header_bytes;
    tensor.end += kLengthBytes + header_bytes;
  }
  return header;
}

std::string layout_safetensors(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    const auto type_a = find_type(a.dtype), type_b = find_type(b.dtype);
    return type_a != type_b ? type_a > type_b : a.name < b.name;
  });
  std::string header = "{";
  if (!metadata.empty()) header += "\"" + std::string(kMetadata) + "\":" + nlohmann::json(metadata).dump();
  uint64_t reached = 0;
  for (StoredTensor& tensor : tensors) {
    const std::optional<uint64_t> numel = numel_of(tensor.sizes);
    GPUTRAIN_ASSERT(numel && item_bytes(tensor.dtype) > 0, "a tensor in memory has a size and a known dtype");
    tensor.begin = reached;
    tensor.end = reached += *numel * item_bytes(tensor.dtype);
    const nlohmann::ordered_json entry = {
        {"dtype", tensor.dtype}, {"shape", tensor.sizes}, {"data_offsets", {tensor.begin, tensor.end}}};
    header += (header.size() > 1 ? "," : "") + nlohmann::json(tensor.name).dump() + ":" + entry.dump();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // aligns the data
  GPUTRAIN_ASSERT(header.size() <= kMaxHeaderBytes, "a header over 100 MB cannot be read back");
  for (StoredTensor& tensor : tensors) {
    tensor.begin += kLengthBytes + header.size();
    tensor.end += kLengthBytes + header.size();
  }
  std::string length(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return length + header;
}

}  // namespace gputrain::checkpoint
