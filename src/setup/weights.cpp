#include "gputrain/setup/weights.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/frozen.hpp"
#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/published.hpp"

namespace gputrain::app {

namespace {

checkpoint::NamedTensors parameters_where(models::Model& model, bool trainable) {
  checkpoint::NamedTensors tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (parameter.trainable == trainable) tensors.emplace_back(name, parameter.value.detach());
  });
  return tensors;
}

}  // namespace

checkpoint::NamedTensors trained_weights(models::Model& model) {
  checkpoint::NamedTensors tensors = parameters_where(model, /*trainable=*/true);
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { tensors.emplace_back(name, buffer.value); });
  return tensors;
}

checkpoint::NamedTensors frozen_weights(models::Model& model) { return parameters_where(model, /*trainable=*/false); }

checkpoint::NamedTensors named_weights(models::Model& model) {
  checkpoint::NamedTensors tensors = trained_weights(model);
  for (auto& frozen : frozen_weights(model)) tensors.push_back(std::move(frozen));
  return tensors;
}

namespace {

namespace fs = std::filesystem;

std::string hint_for(const fs::path& path) {
  if (!fs::is_directory(path)) {
    return "give a local file or folder; download a model of the Hugging Face hub with `hf download NAME "
           "--local-dir DIR`";
  }
  if (fs::exists(path / "model.safetensors.index.json")) {
    return "the weights are split into several files: from_pretrained(DIR).save_pretrained(NEW, "
           "max_shard_size=\"100GB\") joins them";
  }
  return fs::exists(path / "pytorch_model.bin")
             ? "from_pretrained(DIR).save_pretrained(NEW) writes pytorch_model.bin as safetensors"
             : "give the folder that model.safetensors is in";
}

void refuse_other_files(const fs::path& path) {
  const std::string kind = path.extension();
  if (kind == ".json") {
    const fs::path folder = path.parent_path();
    throw Error(ExitCode::data, {.what = "this file describes weights but does not contain them",
                                 .where = path.string(),
                                 .hint = "the folder: " + (folder.empty() ? "." : folder.string())});
  }
  if (kind != ".pt" && kind != ".pth" && kind != ".bin" && kind != ".ckpt") return;
  throw Error(ExitCode::data,
              {.what = "weights are read from safetensors, not from PyTorch's pickled files, which may run code",
               .where = path.string(),
               .hint = "safetensors.torch.save_file(torch.load(FILE, weights_only=True), \"model.safetensors\")"});
}

/// Names of the targets as JSON; empty if they have no names.
std::string targets_text(const data::Dataset& dataset) {
  const auto names = data::target_names(dataset);
  if (names.empty()) return {};
  return nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // may not be UTF-8
}

/// The published family of the folder's config.json, if it names the model's weights; null: the model's own names.
std::shared_ptr<const models::PublishedFamily> family_beside(const fs::path& path, const models::Model& model) {
  std::ifstream file(path / "config.json");
  const auto config = nlohmann::json::parse(file, nullptr, false);
  if (!config.is_object()) return nullptr;
  auto family = models::family_meant_by(config);
  return family && family->names(model) ? std::move(family) : nullptr;
}

fs::path file_of(const fs::path& path) { return fs::is_directory(path) ? path / "model.safetensors" : path; }

/// The other file of a checkpoint's weights, if there is one.
std::optional<checkpoint::SafetensorsFile> frozen_beside(const fs::path& file) {
  const fs::path folder = file.parent_path(), manifest = folder / checkpoint::kManifestName;
  if (file.filename() != "model.safetensors" || !fs::exists(manifest)) return std::nullopt;
  const auto& frozen = checkpoint::parse_manifest(checkpoint::read_text(manifest), manifest).frozen;
  if (!frozen) return std::nullopt;
  checkpoint::look_at_frozen(folder, *frozen);
  return checkpoint::SafetensorsFile(checkpoint::frozen_path(folder, *frozen));
}

}  // namespace

void check_there_are_weights(const fs::path& path) {
  if (fs::exists(file_of(path))) return;
  throw Error(ExitCode::data, {.what = fs::exists(path) ? "there are no weights" : "no such file or folder",
                               .where = fs::exists(path) ? file_of(path).string() : path.string(),
                               .hint = hint_for(path)});
}

int64_t load_weights(models::Model& model, const fs::path& path, models::OtherClasses other_classes) {
  check_there_are_weights(path);
  const auto file_path = file_of(path);
  refuse_other_files(file_path);
  const checkpoint::SafetensorsFile file(file_path);
  const auto frozen = frozen_beside(file_path);
  std::vector<std::string> names = file.names();
  const std::set<std::string> own(names.begin(), names.end());
  if (frozen) std::ranges::copy(frozen->names(), std::back_inserter(names));
  const auto tensor = [&](const std::string& name) {
    return own.contains(name) || !frozen ? file.tensor(name) : frozen->tensor(name);
  };
  return models::load_weights(
      model,
      {.where = file_path.string(), .names = std::move(names), .tensor = tensor, .family = family_beside(path, model)},
      other_classes);
}

std::string other_targets(const fs::path& path, const data::Dataset& dataset) {
  const auto metadata = checkpoint::SafetensorsFile(file_of(path)).metadata();
  const auto told = metadata.find(tokenizers::kTargets);
  if (told == metadata.end()) return {};
  const auto theirs = nlohmann::json::parse(told->second, nullptr, false);
  const auto ours = nlohmann::json::parse(targets_text(dataset), nullptr, false);
  if (!theirs.is_array() || !ours.is_array() || theirs.size() != ours.size()) return {};
  const auto shown = [](const nlohmann::json& name) { return name.dump(-1, ' ', /*ensure_ascii=*/true); };
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i] == ours[i]) continue;
    return std::to_string(i) + " is " + shown(theirs[i]) + " to these weights and " + shown(ours[i]) + " in this data";
  }
  return {};
}

void write_weights(models::Model& model, const data::Dataset& learned, const RunFolder& folder) {
  checkpoint::Metadata metadata;
  if (const auto tokenizer = learned.tokenizer(); tokenizer && learned.class_names().empty()) {
    tokenizer->save(metadata);
  } else if (std::string targets = targets_text(learned); !targets.empty()) {
    metadata[tokenizers::kTargets] = std::move(targets);
  }
  auto tensors = named_weights(model);
  if (const auto family = models::family_of(model))
    for (auto& [name, tensor] : tensors) name = family->file_name_of(model, name);
  checkpoint::write_safetensors(folder.weights(), tensors, metadata);
  const auto config = models::published_config(model);
  if (!config.is_null()) write_file_atomically(folder.model_config(), config.dump(2) + "\n", ExitCode::environment);
}

}  // namespace gputrain::app
