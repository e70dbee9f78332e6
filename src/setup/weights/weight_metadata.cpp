#include "weight_metadata.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Returns names of the targets as JSON; empty if they have no names.
std::string targets_text(const data::Dataset& dataset) {
  const auto names = data::target_names(dataset);
  if (names.empty()) return {};
  return nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // may not be UTF-8
}

/// Key of the metadata with the tokenizer's tokens, if it is made from the data.
constexpr const char* kVocabulary = "vocabulary";

/// Returns a hash of the tokens' texts; empty: the tokenizer is not made from the data.
std::string vocabulary_of(const data::Dataset& dataset) {
  const auto tokenizer = dataset.tokenizer();
  if (tokenizer == nullptr || !tokenizer->folder().empty()) return {};
  std::string all;
  for (const std::string& text : tokenizer->token_texts()) all += text + '\0';
  return std::to_string(stable_hash(all));
}

/// Returns the metadata of weights or, as a checkpoint has none, of those that its run has written at its end.
checkpoint::Metadata metadata_at(const fs::path& path) {
  const fs::path adapter = adapter_folder_at(path);
  const fs::path weights = adapter.empty() ? path : adapter / models::kAdapterWeights;
  auto metadata = checkpoint::WeightFiles(weights).metadata();
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  const RunFolder run = run_at(folder);
  const bool is_of_run = run.path != folder && exists(run.weights());
  return metadata.empty() && is_of_run ? checkpoint::WeightFiles(run.weights()).metadata() : metadata;
}

nlohmann::json json_beside(const fs::path& path, const char* name) {
  return parse_json_file((fs::is_directory(path) ? path : path.parent_path()) / name);
}

}  // namespace

nlohmann::json config_beside(const fs::path& path) { return json_beside(path, "config.json"); }

checkpoint::Metadata metadata_of(const data::Dataset& learned) {
  checkpoint::Metadata metadata;
  if (const auto tokenizer = learned.tokenizer(); tokenizer && learned.class_names().empty()) {
    tokenizer->save(metadata);
  } else if (std::string targets = targets_text(learned); !targets.empty()) {
    metadata[tokenizers::kTargets] = std::move(targets);
  }
  if (std::string vocabulary = vocabulary_of(learned); !vocabulary.empty())
    metadata[kVocabulary] = std::move(vocabulary);
  note_images(learned, metadata);
  return metadata;
}

std::optional<models::ImageSize> images_of(const fs::path& path) {
  if (const auto images = images_in(metadata_at(path))) {
    const auto& sizes = images->layout.input().sizes;
    return models::ImageSize{sizes[0], sizes[1]};
  }
  return models::image_size_in(config_beside(path));
}

models::PublishedImages published_images_beside(const fs::path& path) {
  const models::PublishedImages told = models::timm_images_in(config_beside(path));
  return told.normalization ? told : models::processor_images_in(json_beside(path, "preprocessor_config.json"));
}

Targets targets_of(const fs::path& path) {
  const auto metadata = metadata_at(path);
  const auto told = metadata.find(tokenizers::kTargets);
  if (told == metadata.end()) {
    const nlohmann::json config = config_beside(path);
    return {.names = config.is_object() ? models::class_names_in(config) : std::vector<std::string>(),
            .are_published = true};
  }
  const auto names = parse_json(told->second);
  const bool are_names =
      names.is_array() && std::ranges::all_of(names, [](const nlohmann::json& name) { return name.is_string(); });
  return {.names = are_names ? names.get<std::vector<std::string>>() : std::vector<std::string>()};
}

namespace {

std::string shown(const std::string& name) { return nlohmann::json(name).dump(-1, ' ', /*ensure_ascii=*/true); }

bool are_numbers_in_order(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != std::to_string(i)) return false;
  return true;
}

}  // namespace

std::string other_targets(const Targets& targets, const data::Dataset& dataset) {
  const auto& theirs = targets.names;
  const std::string text = targets_text(dataset);
  if (theirs.empty() || text.empty()) return {};
  const auto ours = nlohmann::json::parse(text).get<std::vector<std::string>>();
  const bool follow_names = !models::rows_by_name(theirs, dataset.class_names()).empty();
  if (theirs.size() != ours.size() || follow_names || (targets.are_published && are_numbers_in_order(ours))) return {};
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i] == ours[i]) continue;
    return std::to_string(i) + " is " + shown(theirs[i]) + " to these weights and " + shown(ours[i]) + " in this data";
  }
  return {};
}

void check_learned_from(const fs::path& weights, const JobDatasets& datasets) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::data,
                {.what = "the weights were trained on other data: " + what,
                 .where = weights.string(),
                 .hint = "numbers follow data.train: use the data.train that the weights were trained on"});
  };
  const Targets theirs = targets_of(weights);
  const std::string difference = theirs.are_published ? "" : other_targets(theirs, *datasets.train);
  if (!difference.empty()) refuse(datasets.target_kind() + " " + difference);
  const auto metadata = metadata_at(weights);
  const auto told = metadata.find(kVocabulary);
  const std::string vocabulary = vocabulary_of(*datasets.train);
  if (told != metadata.end() && !vocabulary.empty() && told->second != vocabulary)
    refuse("the tokenizer that is made from this data has other tokens");
}

}  // namespace gputrain::app
