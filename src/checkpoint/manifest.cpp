#include "manifest.hpp"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "gputrain checkpoint";
constexpr int64_t kVersion = 1;
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

[[noreturn]] void reject(const fs::path& path, const std::string& what) {
  throw Damage(ExitCode::checkpoint, {.what = what, .where = path.string()});
}

/// The size of a file that must be there.
uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) reject(path, "missing");
  const uint64_t bytes = fs::is_regular_file(status) ? fs::file_size(path, error) : 0;
  if (error) throw Error(ExitCode::checkpoint, {.what = "cannot read: " + error.message(), .where = path.string()});
  if (!fs::is_regular_file(status)) reject(path, "is no file");
  return bytes;
}

/// A name that stays inside the checkpoint's folder.
bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != kManifestName;
}

Manifest parse_manifest(const fs::path& path, const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format") != kFormat) reject(path, "not a manifest of a checkpoint");
    if (json.at("version") != kVersion) {
      reject(path, fmt::format("format version {} is unknown to this gputrain", json.at("version").dump()));
    }
    Manifest manifest{.step = json.at("step").get<int64_t>()};
    for (const auto& [name, seal] : json.at("files").items()) {
      if (!is_plain(name)) reject(path, "a file's name leads out of the folder");
      manifest.files[name] = {.bytes = seal.at("bytes").get<uint64_t>(),
                              .xxh3_128 = seal.at("xxh3_128").get<std::string>()};
    }
    if (json.contains("score")) {
      const auto& score = json["score"];
      manifest.score = {.metric = score.at("metric").get<std::string>(), .value = score.at("value").get<double>()};
    }
    return manifest;
  } catch (const nlohmann::json::exception&) {
    reject(path, "damaged: not the JSON that was written");
  }
}

void verify_file(const fs::path& path, const FileSeal& expected, bool hashes) {
  const uint64_t bytes = size_of(path);
  if (bytes != expected.bytes) reject(path, fmt::format("has {} bytes instead of {}", bytes, expected.bytes));
  if (hashes && seal_of(path, ExitCode::checkpoint) != expected) reject(path, "damaged: its hash differs");
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, seal] : manifest.files) files[name] = {{"bytes", seal.bytes}, {"xxh3_128", seal.xxh3_128}};
  nlohmann::json json = {
      {"format", kFormat}, {"version", kVersion}, {"step", manifest.step}, {"files", std::move(files)}};
  if (manifest.score) json["score"] = {{"metric", manifest.score->metric}, {"value", manifest.score->value}};
  return json.dump(2) + "\n";
}

std::string folder_name(int64_t step) { return fmt::format("step-{:08}", step); }

Manifest verify(const fs::path& folder, bool hashes) {
  const fs::path path = folder / kManifestName;
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) reject(folder, "has no manifest");
  Manifest manifest = parse_manifest(path, read_text(path));
  if (manifest.files.count(kStateName) == 0) reject(path, "names no state.json");
  for (const auto& [name, seal] : manifest.files) verify_file(folder / name, seal, /*hashes=*/false);
  if (!hashes) return manifest;
  for (const auto& [name, seal] : manifest.files) verify_file(folder / name, seal, /*hashes=*/true);
  return manifest;
}

std::string read_text(const fs::path& path) {
  const uint64_t bytes = size_of(path);
  if (bytes > kMaxTextBytes) reject(path, "cannot be what was written");
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    throw Error(ExitCode::checkpoint, {.what = "cannot read it", .where = path.string()});
  }
  return text;
}

}  // namespace gputrain::checkpoint
