#include "gputrain/checkpoint/manifest.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "gputrain checkpoint";
constexpr int64_t kVersion = 3, kVersionWithOrders = 4, kVersionWithCuts = 5;  // versions of slices
constexpr size_t kMaxDimensions = 64;
constexpr const char* kNoOrder = "an order that is not one of the tensor's dimensions";
constexpr std::string_view kSealKey = "\n  \"seal\": \"";  // unique at this indentation
constexpr size_t kSealDigits = 32;

/// Returns whether this is a file name that stays inside the checkpoint's folder.
bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != kManifestName;
}

/// Throws an exception that the caller turns into Damage.
uint64_t count_in(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) throw std::domain_error("not a count");
  return value.get<uint64_t>();
}

Cut cut_in(const json& value) {
  Cut cut{.dim = static_cast<int64_t>(count_in(value.at("dim"))), .ranges = {}};
  if (!value.at("ranges").is_array()) throw std::domain_error("not ranges of a cut");
  for (const json& range : value["ranges"]) {
    if (!range.is_array() || range.size() != 2) throw std::domain_error("not ranges of a cut");
    cut.ranges.push_back(
        {.begin = static_cast<int64_t>(count_in(range[0])), .end = static_cast<int64_t>(count_in(range[1]))});
  }
  return cut;
}

Slice slice_in(const json& value) {
  Slice slice{.shape = {}, .begin = static_cast<int64_t>(count_in(value.at("begin")))};
  if (!value.at("shape").is_array() || value["shape"].size() > kMaxDimensions) throw std::domain_error("not a shape");
  for (const json& size : value["shape"]) slice.shape.push_back(static_cast<int64_t>(count_in(size)));
  if (value.contains("order")) {
    for (const json& dimension : value["order"]) slice.order.push_back(static_cast<int64_t>(count_in(dimension)));
    if (slice.order.size() != slice.shape.size()) throw std::domain_error(kNoOrder);
  }
  if (value.contains("cut")) slice.cut = cut_in(value["cut"]);
  if (const std::string flaw = flaw_of(slice); !flaw.empty()) throw std::domain_error(flaw);
  return slice;
}

Manifest::File file_in(const json& value) {
  Manifest::File file{
      .seal = {.bytes = count_in(value.at("bytes")), .xxh3_128 = value.at("xxh3_128").get<std::string>()}};
  if (!value.contains("part")) return file;
  file.part = value["part"].get<std::string>();
  file.rank = static_cast<int64_t>(count_in(value.at("rank")));
  if (!value.contains("slices")) return file;
  for (const auto& [name, slice] : value["slices"].items()) file.slices[name] = slice_in(slice);
  return file;
}

Frozen frozen_in(const json& value) {
  Frozen frozen{.seal = {.bytes = count_in(value.at("bytes")), .xxh3_128 = value.at("xxh3_128").get<std::string>()},
                .source = value.at("source").get<std::string>(),
                .tensors = {}};
  if (!is_plain(frozen.file_name())) throw std::domain_error("not a hash");
  for (const auto& [name, entry] : value.at("tensors").items()) {
    Frozen::Tensor tensor{.dtype = entry.at("dtype").get<std::string>(),
                          .shape = {},
                          .xxh3_128 = entry.at("xxh3_128").get<std::string>()};
    if (!entry.at("shape").is_array() || entry["shape"].size() > kMaxDimensions) throw std::domain_error("not a shape");
    for (const json& size : entry["shape"]) tensor.shape.push_back(static_cast<int64_t>(count_in(size)));
    frozen.tensors[name] = std::move(tensor);
  }
  return frozen;
}

json json_of(const Frozen& frozen) {
  json tensors = json::object();
  for (const auto& [name, tensor] : frozen.tensors)
    tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"xxh3_128", tensor.xxh3_128}};
  return {{"bytes", frozen.seal.bytes},
          {"xxh3_128", frozen.seal.xxh3_128},
          {"source", frozen.source},
          {"tensors", std::move(tensors)}};
}

Origin origin_in(const json& value) {
  return {.spec_hash = value.at("spec_hash").get<std::string>(),
          .world_size = static_cast<int64_t>(count_in(value.at("world_size"))),
          .versions = value.at("versions").get<std::map<std::string, std::string>>()};
}

json json_of(const Cut& cut) {
  json ranges = json::array();
  for (const auto& [begin, end] : cut.ranges) ranges.push_back({begin, end});
  return {{"dim", cut.dim}, {"ranges", std::move(ranges)}};
}

json json_of(const Manifest::File& file) {
  json value = {{"bytes", file.seal.bytes}, {"xxh3_128", file.seal.xxh3_128}};
  if (file.part.empty()) return value;
  value["part"] = file.part;
  value["rank"] = file.rank;
  for (const auto& [name, slice] : file.slices) {
    GPUTRAIN_ASSERT(flaw_of(slice).empty(), flaw_of(slice) + ": " + name);
    json& entry = value["slices"][name];
    entry = {{"shape", slice.shape}, {"begin", slice.begin}};
    if (!slice.order.empty()) entry["order"] = slice.order;
    if (slice.cut) entry["cut"] = json_of(*slice.cut);
  }
  return value;
}

/// Returns the lowest version that has all features of the manifest. Earlier programs do not know orders and cuts of
/// slices and would mix up the elements.
int64_t version_of(const Manifest& manifest) {
  int64_t version = kVersion;
  for (const auto& [name, file] : manifest.files) {
    for (const auto& [tensor, slice] : file.slices) {
      if (slice.cut) return kVersionWithCuts;
      if (!slice.order.empty()) version = kVersionWithOrders;
    }
  }
  return version;
}

std::string xxh3_of(std::string_view unsealed) {
  Sealer sealer;
  sealer.add(unsealed.data(), unsealed.size());
  return sealer.seal().xxh3_128;
}

bool is_sealed(std::string_view text) {
  const size_t key = text.find(kSealKey), digits = key + kSealKey.size();
  if (key == std::string_view::npos || text.size() < digits + kSealDigits) return false;
  std::string unsealed(text);
  unsealed.replace(digits, kSealDigits, kSealDigits, '0');
  return text.substr(digits, kSealDigits) == xxh3_of(unsealed);
}

std::string flaw_of(const Cut& cut, const std::vector<int64_t>& shape) {
  if (cut.dim < 0 || static_cast<size_t>(cut.dim) >= shape.size()) return "a cut along a dimension that is not there";
  if (cut.ranges.empty()) return "a cut that leaves nothing";
  int64_t reached = 0;
  for (const auto& [begin, end] : cut.ranges) {
    if (begin < reached || end <= begin) return "ranges of a cut that are empty, overlap or do not ascend";
    reached = end;
  }
  return reached > shape[static_cast<size_t>(cut.dim)] ? "a cut outside its tensor" : "";
}

/// Returns the number of elements; nothing if there are more than an int64 counts.
std::optional<int64_t> elements_in(const std::vector<int64_t>& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  return elements;
}

}  // namespace

std::vector<int64_t> sizes_of_cut(const Slice& slice) {
  std::vector<int64_t> sizes = slice.shape;
  if (!slice.cut) return sizes;
  int64_t& size = sizes[static_cast<size_t>(slice.cut->dim)];
  size = 0;
  for (const auto& [begin, end] : slice.cut->ranges) size += end - begin;
  return sizes;
}

std::string flaw_of(const Slice& slice) {
  if (!elements_in(slice.shape)) return "a shape too large for memory";
  if (slice.cut) {
    if (!slice.order.empty()) return "a cut of a tensor that is not row-major";
    if (std::string flaw = flaw_of(*slice.cut, slice.shape); !flaw.empty()) return flaw;
  }
  if (slice.begin < 0 || slice.begin > *elements_in(sizes_of_cut(slice))) return "a slice outside its tensor";
  if (slice.order.empty()) return "";
  std::vector<int64_t> ascending = slice.order, all(slice.shape.size());
  std::ranges::sort(ascending);
  std::iota(all.begin(), all.end(), int64_t{0});
  return ascending == all ? "" : kNoOrder;
}

std::string to_json(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, file] : manifest.files) files[name] = json_of(file);
  json value = {{"format", kFormat},
                {"version", version_of(manifest)},
                {"step", manifest.step},
                {"origin",
                 {{"spec_hash", manifest.origin.spec_hash},
                  {"world_size", manifest.origin.world_size},
                  {"versions", manifest.origin.versions},
                  {"lineage", json::array()}}},  // earlier programs demand it
                {"files", std::move(files)},
                {"seal", std::string(kSealDigits, '0')}};
  if (manifest.score) value["score"] = {{"metric", manifest.score->metric}, {"value", manifest.score->value}};
  if (manifest.for_good) value["for_good"] = *manifest.for_good;
  if (manifest.frozen) value["frozen"] = json_of(*manifest.frozen);
  std::string text = value.dump(2) + "\n";
  const std::string seal = xxh3_of(text);
  return text.replace(text.find(kSealKey) + kSealKey.size(), kSealDigits, seal);
}

std::string to_json(const Manifest::File& file) { return json_of(file).dump(2) + "\n"; }

Manifest::File parse_file(std::string_view text, const fs::path& path) {
  try {
    return file_in(parse_json(text));
  } catch (const json::exception&) {
    throw Damage("damaged: not the JSON that was written", path);
  } catch (const std::domain_error& problem) {
    throw Damage(std::string("damaged: ") + problem.what(), path);
  }
}

Manifest parse_manifest(std::string_view text, const fs::path& path) {
  try {
    const json value = parse_json(text);
    if (value.at("format") != kFormat) throw Damage("not a manifest of a checkpoint", path);
    if (value.at("version") != kVersion && value["version"] != kVersionWithOrders &&
        value["version"] != kVersionWithCuts) {
      throw Unreadable(
          fmt::format("format version {} is unknown to this gputrain", value["version"].dump(-1, ' ', true)), path);
    }
    if (!is_sealed(text)) throw Damage("damaged: its seal differs", path);
    Manifest manifest{.step = static_cast<int64_t>(count_in(value.at("step"))),
                      .origin = origin_in(value.at("origin"))};
    for (const auto& [name, file] : value.at("files").items()) {
      if (!is_plain(name)) throw Damage("a file name points outside the folder", path);
      manifest.files[name] = file_in(file);
    }
    if (manifest.files.count(kStateName) == 0) throw Damage("does not list state.json", path);
    if (value.contains("for_good")) manifest.for_good = value["for_good"].get<bool>();
    if (value.contains("frozen")) manifest.frozen = frozen_in(value["frozen"]);
    if (value.contains("score")) {
      const json& score = value["score"];
      manifest.score = {.metric = score.at("metric").get<std::string>(), .value = score.at("value").get<double>()};
    }
    return manifest;
  } catch (const json::exception&) {
    throw Damage("damaged: not the JSON that was written", path);
  } catch (const std::domain_error& problem) {
    throw Damage(std::string("damaged: ") + problem.what(), path);
  }
}

std::string Frozen::file_name() const { return "frozen-" + seal.xxh3_128 + kTensorSuffix; }

std::string folder_name(int64_t step, int64_t number) {
  return fmt::format("step-{:08}", step) + (number == 1 ? "" : fmt::format("-{}", number));
}

std::string file_name(const std::string& part, int64_t rank, int64_t ranks) {
  if (ranks == 1) return part + kTensorSuffix;
  return fmt::format("{}-{:05}-of-{:05}{}", part, rank + 1, ranks, kTensorSuffix);
}

}  // namespace gputrain::checkpoint
