#include "gputrain/setup/weights.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/safetensors_writer.hpp"
#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "weight_metadata.hpp"

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

/// Returns the published family that the folder's config.json and the model's weights belong to; null: none, own names.
std::shared_ptr<const models::PublishedFamily> family_beside(const fs::path& path, const models::Model& model) {
  const nlohmann::json config = fs::is_directory(path) ? config_beside(path) : nlohmann::json();
  if (!config.is_object()) return nullptr;
  auto family = models::family_meant_by(config);
  return family && family->names(model) ? std::move(family) : nullptr;
}

/// Returns a hint for published weights of other sizes than the model's; empty: none is known.
std::string sizes_hint(const fs::path& path, const models::Model& model) {
  if (!models::family_of(model)) return {};
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  if (!fs::exists(folder / "config.json")) {
    return "there is no config.json beside them to give the model's sizes: put there the one that they were published "
           "with, or give the sizes in model.config";
  }
  return fs::is_directory(path) ? ""
                                : "model.pretrained: " + (folder / "").string() + " takes the sizes from config.json";
}

}  // namespace

void check_weights(const fs::path& path) { checkpoint::WeightFiles{path}; }

bool has_weights(const fs::path& path) {
  try {
    check_weights(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool awaits_weights(const fs::path& path) {
  if (path.empty() || !fs::exists(path / "config.json")) return false;
  return std::ranges::none_of(fs::directory_iterator(path), [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".safetensors" || entry.path().extension() == ".bin";
  });
}

namespace {

/// Returns for each class its row in the weights; empty: the same row, or not known.
std::vector<int64_t> rows_of_classes(const fs::path& path, const std::vector<std::string>& class_names) {
  return class_names.empty() ? std::vector<int64_t>() : models::rows_by_name(targets_of(path).names, class_names);
}

}  // namespace

models::TensorSource weight_source(const fs::path& path, const models::Model& model) {
  const auto files = std::make_shared<const checkpoint::WeightFiles>(path);
  return {.where = files->path().string(),
          .names = files->names(),
          .tensor = [files](const std::string& name) { return files->tensor(name); },
          .file_of = [files](const std::string& name) { return files->file_of(name).string(); },
          .family = family_beside(path, model)};
}

models::NotLoaded load_weights(BuiltModel& built, const fs::path& path, models::OtherClasses other_classes) {
  models::Model& model = *built.model;
  models::TensorSource source = weight_source(path, model);
  auto images = built.images ? images_of(path) : std::nullopt;
  const bool is_trained = other_classes == models::OtherClasses::refused;
  if (!images && is_trained) images = built.images;  // assumes this model's
  std::string hint = built.images ? "" : sizes_hint(path, model);
  if (is_trained && exists(run_at(fs::is_directory(path) ? path : path.parent_path()).resolved()))
    hint = "use the model.type and model.config of the run that trained them: without --set model.config...";
  source.sizes_hint = hint;
  source.class_rows = rows_of_classes(path, built.class_names);
  source.images = images;
  return models::load_weights(model, models::with_packed(std::move(source)), other_classes);
}

namespace {

/// Names and shapes of tensors in a file of the model's published family.
class Publishing {
 public:
  explicit Publishing(models::Model& model) : model_(model), family_(models::family_of(model)) {
    for (const std::string& name : models::branch_tensors(model)) left_out_.insert(name);
  }

  /// Returns a tensor as the file has it; an empty name for what an adapter adds.
  checkpoint::NamedTensors::value_type operator()(const std::string& name, const at::Tensor& tensor) const {
    if (left_out_.contains(name)) return {};
    if (!family_) return {name, tensor};
    return {family_->file_name_of(model_, name), models::stored(model_, name, tensor)};
  }

 private:
  models::Model& model_;
  std::unique_ptr<const models::PublishedFamily> family_;
  std::set<std::string> left_out_;
};

/// Turns tensors into those of the model's published family, without what an adapter adds.
checkpoint::NamedTensors published(models::Model& model, checkpoint::NamedTensors tensors) {
  const Publishing publish(model);
  for (auto& named : tensors) named = publish(named.first, named.second);
  std::erase_if(tensors, [](const auto& named) { return named.first.empty(); });
  return tensors;
}

/// Returns named_weights() with undefined values if ranks share a parameter; its sizes are those of the whole.
checkpoint::NamedTensors whole_sizes(models::Model& model) {
  std::map<std::string, at::Tensor> whole;
  model.each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
    const at::Tensor value = parameter.value.detach();
    if (parameter.split)
      whole[name] = at::empty({}, value.options()).expand(parameter.split->whole_sizes(value.sizes().vec()));
  });
  checkpoint::NamedTensors tensors = named_weights(model);
  for (auto& [name, tensor] : tensors) {
    if (const auto found = whole.find(name); found != whole.end()) tensor = found->second;
  }
  return tensors;
}

/// Gathers one unit or parameter after the other on every rank; rank 0 writes it.
void write_in_turn(BuiltModel& built, int rank, const data::Dataset& learned, const fs::path& path) {
  std::optional<checkpoint::SafetensorsWriter> writer;
  if (rank == 0) writer.emplace(path, published(*built.model, whole_sizes(*built.model)), metadata_of(learned));
  const Publishing publish(*built.model);
  const auto write = [&](const std::string& name, const at::Tensor& values) {
    if (!writer) return;
    const auto [published, stored] = publish(name, values);
    if (!published.empty()) writer->write(published, stored);
  };
  each_weight(built, write);
  built.model->each_buffer([&](const std::string& name, nn::Buffer& buffer) { write(name, buffer.value); });
  if (writer) writer->commit();
}

void write_config(models::Model& model, const RunFolder& folder) {
  auto config = models::published_config(model);
  if (config.is_null()) return;
  add_special_tokens(config, folder.path);
  write_file_atomically(folder.model_config(), config.dump(2) + "\n", ExitCode::environment);
}

}  // namespace

checkpoint::NamedTensors published_weights(models::Model& model) {
  checkpoint::NamedTensors weights = named_weights(model);
  const std::map<std::string, int64_t> packed = models::weights_of_packed(model);
  std::erase_if(weights, [&](const auto& named) { return packed.contains(named.first); });
  return published(model, std::move(weights));
}

void write_weights(BuiltModel& built, int rank, const data::Dataset& learned, const RunFolder& folder) {
  if (built.has_parts()) {
    write_in_turn(built, rank, learned, folder.weights());
    if (rank == 0) write_config(*built.model, folder);
  } else if (rank == 0) {
    write_weights(*built.model, named_weights(*built.model), learned, folder);
  }
}

void write_weights(models::Model& model, const checkpoint::NamedTensors& weights, const data::Dataset& learned,
                   const RunFolder& folder) {
  checkpoint::write_safetensors(folder.weights(), published(model, weights), metadata_of(learned));
  write_config(model, folder);
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to, const fs::path& source) {
  const auto copy = [&](const fs::path& file, const fs::path& as) {
    if (!fs::exists(file)) return;
    std::ifstream stream(file, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    write_file_atomically(to / as, content, ExitCode::environment);
  };
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json"})
    copy(from / name, name);
  const bool has_known_name = source.filename() == "vocab.json" || source.filename() == "merges.txt";
  if (!source.empty() && !has_known_name) {
    const fs::path kind = source.extension();
    return copy(source, kind == ".json" ? "tokenizer.json" : kind == ".model" ? "tokenizer.model" : source.filename());
  }
  for (const char* name : {"vocab.json", "merges.txt"}) copy(from / name, name);
  if (has_known_name) return;
  for (const char* name : {"tokenizer.json", "added_tokens.json", "vocab.txt", "tokenizer.model", "tekken.json"})
    copy(from / name, name);
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.path().extension() == ".tiktoken") copy(entry.path(), entry.path().filename());
}

fs::path adapter_folder_at(const fs::path& path) {
  for (const fs::path& folder : {path, path / "adapter", path.parent_path()}) {
    const bool is_of_file = folder == path.parent_path() && path.filename() != models::kAdapterWeights;
    if (!is_of_file && fs::exists(folder / models::kAdapterConfig)) return folder;
  }
  return {};
}

void load_adapter(BuiltModel& built, const fs::path& folder) {
  const fs::path config = folder / models::kAdapterConfig;
  built.adapter->check_config(*built.model, checkpoint::read_json_object(config), config.string());
  const checkpoint::WeightFiles files(folder / models::kAdapterWeights);
  std::vector<std::string> names = targets_of(folder).names;
  if (names.empty() && !built.pretrained.empty()) names = targets_of(built.pretrained).names;
  models::load_adapter(*built.model, {.where = files.path().string(),
                                      .names = files.names(),
                                      .tensor = [&](const std::string& name) { return files.tensor(name); },
                                      .sizes_hint = "the adapter is of another base model, or of other target_modules",
                                      .class_rows = models::rows_by_name(names, built.class_names)});
}

void write_adapter(models::Model& model, const TrainedAdapter& trained, const fs::path& folder) {
  fs::create_directories(folder);
  checkpoint::write_safetensors(folder / models::kAdapterWeights, models::adapter_weights(model, trained.weights),
                                metadata_of(trained.learned));
  write_file_atomically(folder / models::kAdapterConfig, trained.adapter.config_of(model, trained.base).dump(2) + "\n",
                        ExitCode::environment);
}

}  // namespace gputrain::app
