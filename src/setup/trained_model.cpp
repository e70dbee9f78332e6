#include "gputrain/setup/trained_model.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/setup/image_model.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "no_samples.hpp"

namespace gputrain::app {
namespace {

/// The names of the classes, if the weights have one for each.
std::vector<std::string> class_names_in(const checkpoint::Metadata& metadata, int64_t classes) {
  const auto told = metadata.find(tokenizers::kTargets);
  if (told == metadata.end()) return {};
  const auto names = nlohmann::json::parse(told->second, nullptr, false);
  const bool is_list = names.is_array() && std::ssize(names) == classes &&
                       std::ranges::all_of(names, [](const auto& name) { return name.is_string(); });
  return is_list ? names.get<std::vector<std::string>>() : std::vector<std::string>();
}

/// What the model must know of its data.
JobDatasets data_of_weights(const Job& job, const std::filesystem::path& weights) {
  const checkpoint::Metadata metadata = checkpoint::WeightFiles(weights).metadata();
  const auto input = ImageInput::in(metadata);
  if (!input || std::min({input->height, input->width, input->channels, input->classes}) < 1) return open_datasets(job);
  return datasets_of(job, std::make_shared<NoSamples>(
                              data::SampleLayout::images(input->height, input->width, input->channels, input->classes),
                              class_names_in(metadata, input->classes), nullptr, input->normalization));
}

}  // namespace

std::unique_ptr<TrainedModel> open_trained_model(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& set) {
  const RunFolder run{folder};
  if (!exists(run.resolved()))
    throw Error(ExitCode::usage, {.what = "not a run folder: it has no job.resolved.yaml", .where = folder.string()});
  const Job job = load_job({.file = run.resolved().string(), .set = set, .output_dir = folder.string()});
  const std::filesystem::path weights = weights_of_run(job, run);
  if (weights.empty())
    throw Error(ExitCode::data, {.what = "there are no trained weights",
                                 .where = folder.string(),
                                 .hint = "a run writes them at its end, and in every checkpoint"});
  auto model = std::make_unique<TrainedModel>();
  model->context = create_rank_context(job);
  model->datasets = data_of_weights(job, weights);
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  return model;
}

}  // namespace gputrain::app
