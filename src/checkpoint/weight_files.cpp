#include "gputrain/checkpoint/weight_files.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/checkpoint.hpp"
#include "gputrain/checkpoint/frozen.hpp"
#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/hub/cache.hpp"
#include "not_weights.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWeights = "model.safetensors", *kIndex = "model.safetensors.index.json";
/// Returns a hint for a missing or broken file.
std::string fetch_again(const fs::path& path) {
  const std::string fetch = hub::fetch_command_for(path);
  return fetch.empty() ? "download the folder again: `gputrain fetch NAME` fetches what is missing or has another size"
                       : "not all of the model is here: " + fetch;
}

[[noreturn]] void refuse(const fs::path& where, std::string what, std::string hint = {}) {
  throw Error(ExitCode::data, {.what = std::move(what), .where = where.string(), .hint = std::move(hint)});
}

/// Returns a safetensors file of another name; empty: there is none.
fs::path other_weights_in(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  return {};
}

std::string hint_for(const fs::path& path) {
  if (!fs::is_directory(path)) {
    return "give a local file or folder, or the name of a model that `gputrain fetch NAME` has fetched";
  }
  if (!hub::fetch_command_for(path).empty()) return fetch_again(path);
  const nlohmann::json config = parse_json_file(path / "config.json");
  if (fs::exists(path / "pytorch_model.bin") && config.is_object() && config.contains("architecture"))
    return kTorchConversion;
  if (fs::exists(path / "pytorch_model.bin") || fs::exists(path / "pytorch_model.bin.index.json")) {
    return "from_pretrained(DIR).save_pretrained(NEW) writes pytorch_model.bin as safetensors";
  }
  const fs::path other = other_weights_in(path);
  return other.empty() ? "give the folder that model.safetensors is in" : "give a file, for instance " + other.string();
}

/// Returns the file of weights, or the index of a folder's shards.
fs::path found_at(const fs::path& path) {
  if (!fs::exists(path)) refuse(path, "no such file or folder", hint_for(path));
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / kWeights)) return path / kWeights;
  if (fs::exists(path / kIndex)) return path / kIndex;
  if (fs::exists(path / kManifestName)) return path / kManifestName;
  refuse(path / kWeights, "there are no weights", hint_for(path));
}

void refuse_other_files(const fs::path& path) {
  const std::string kind = path.extension();
  if (kind == ".json") {
    const fs::path folder = path.parent_path();
    refuse(path, "this file describes weights but does not contain them",
           "the folder: " + (folder.empty() ? "." : folder.string()));
  }
  if (kind != ".pt" && kind != ".pth" && kind != ".bin" && kind != ".ckpt") return;
  refuse(path, "weights are read from safetensors, not from PyTorch's pickled files, which may run code",
         kTorchConversion);
}

/// Returns the other file of a checkpoint's weights; empty: there is none.
fs::path frozen_beside(const fs::path& file) {
  const fs::path folder = file.parent_path(), manifest = folder / kManifestName;
  if (file.filename() != kWeights || !fs::exists(manifest)) return {};
  const auto& frozen = parse_manifest(read_text(manifest), manifest).frozen;
  if (!frozen) return {};
  look_at_frozen(folder, *frozen);
  return frozen_path(folder, *frozen);
}

/// Reads an index of shards, which names the file of each tensor.
std::map<std::string, std::string> files_by_tensor(const fs::path& index) {
  const nlohmann::json content = read_json_object(index);
  const auto map = content.find("weight_map");
  if (map == content.end() || !map->is_object()) refuse(index, "'weight_map' is missing", fetch_again(index));
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name || name == "..") {
      refuse(index, printable("'weight_map' names no file beside it for tensor '" + tensor + "': " + file.dump()));
    }
    files.emplace(tensor, name);
  }
  return files;
}

void require_files(const fs::path& index, const std::map<std::string, std::string>& files) {
  std::set<std::string> all, missing;
  for (const auto& [tensor, file] : files) all.insert(file);
  std::ranges::copy_if(all, std::inserter(missing, missing.end()),
                       [&](const std::string& file) { return !fs::exists(index.parent_path() / file); });
  if (missing.empty()) return;
  const std::string others = missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more" : "";
  refuse(index,
         "of its " + counted(static_cast<int64_t>(all.size()), "file") + " with weights " +
             printable(*missing.begin()) + others + (others.empty() ? " is missing" : " are missing"),
         fetch_again(index));
}

}  // namespace

WeightFiles::WeightFiles(const fs::path& path) : path_(found_at(path)) {
  if (path_.filename() == kIndex && fs::is_directory(path)) {
    add_shards();
    return;
  }
  if (path_.filename() == kManifestName && fs::is_directory(path)) {
    part_ = std::make_shared<const Part>(Checkpoint::look_into(path).part("model"));
    return;
  }
  refuse_other_files(path_);
  add(path_);
  if (const fs::path frozen = frozen_beside(path_); !frozen.empty()) add(frozen);
}

void WeightFiles::add(const fs::path& path) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  for (const std::string& name : file->names()) holders_.emplace(name, file);
  if (path == path_) metadata_ = file->metadata();
}

void WeightFiles::add_shards() {
  const auto files = files_by_tensor(path_);
  require_files(path_, files);
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> opened;
  for (const auto& [tensor, name] : files) {
    auto& file = opened[name];
    if (!file) file = std::make_shared<const SafetensorsFile>(path_.parent_path() / name);
    if (!file->has(tensor)) {
      refuse(file->path(), printable("tensor '" + tensor + "' is not in it, though " + kIndex + " says so"),
             fetch_again(path_));
    }
    holders_.emplace(tensor, file);
  }
}

std::vector<std::string> WeightFiles::names() const {
  if (part_) return part_->names();
  std::vector<std::string> names;
  for (const auto& [name, file] : holders_) names.push_back(name);
  return names;
}

nlohmann::json read_json_object(const fs::path& path) {
  const std::string text = read_json_text(path);
  auto json = parse_json(text);
  if (json.is_object()) return json;
  if (is_nested_too_deep(text)) refuse(path, "lists or objects within each other are too deep for such a file");
  const NotWeights other = not_weights(text);
  refuse(path, "not a JSON object" + (other.what.empty() ? "" : " but " + other.what), other.hint);
}

}  // namespace gputrain::checkpoint
