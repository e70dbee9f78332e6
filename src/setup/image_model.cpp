#include "gputrain/setup/image_model.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "no_samples.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kImageInput = "image_input";

TrainedImages trained_on(const data::Dataset& data, const fs::path& folder) {
  const auto input = ImageInput::of(data);
  if (!input) throw Error(ExitCode::usage, {.what = "the run does not learn from images", .where = folder.string()});
  return {.input = *input, .class_names = data.class_names()};
}

InputSpec reads(const Job& job) { return models::catalog().reads(job.spec().model.architecture); }

bool labels_pixels(const Job& job) { return reads(job).labels_pixels; }

/// How the run's validation data is read, with what it left to the data.
data::ImageOptions options_of(const Job& job, const ImageInput& input) {
  data::ImageOptions options = job.spec().data.image;
  if (options.size.is_auto() && !labels_pixels(job))
    options.size.value = config::OneOrMore<int64_t>{input.height, input.width};
  options.channels.value = input.channels;
  options.mean = input.normalization.mean;
  options.std = input.normalization.std;
  return options;
}

}  // namespace

std::optional<ImageInput> ImageInput::of(const data::Dataset& learned) {
  const data::SampleLayout& layout = learned.layout();
  const auto statistics = learned.normalization();
  if (!layout.is_image() || layout.num_classes == 0 || !statistics) return std::nullopt;
  const auto& sizes = layout.input().sizes;
  return ImageInput{.height = sizes[0],
                    .width = sizes[1],
                    .channels = sizes[2],
                    .classes = layout.num_classes,
                    .normalization = *statistics};
}

std::optional<ImageInput> ImageInput::in(const checkpoint::Metadata& metadata) {
  const auto found = metadata.find(kImageInput);
  if (found == metadata.end()) return std::nullopt;
  try {
    const json told = parse_json(found->second);
    const ImageInput input{.height = told.at("height"),
                           .width = told.at("width"),
                           .channels = told.at("channels"),
                           .classes = told.at("classes"),
                           .normalization = {.mean = told.at("mean"), .std = told.at("std")}};
    if (std::min({input.height, input.width, input.channels, input.classes}) < 1) return std::nullopt;
    return input;
  } catch (const json::exception&) {  // written by another program
    return std::nullopt;
  }
}

data::SampleLayout ImageInput::layout(TextUse use) const {
  const bool has_numbers = use == TextUse::number || use == TextUse::labels;
  return (has_numbers ? data::SampleLayout::images_with_numbers : data::SampleLayout::images)(height, width, channels,
                                                                                              classes);
}

void ImageInput::note(checkpoint::Metadata& metadata) const {
  metadata[kImageInput] =
      json{{"height", height},           {"width", width},          {"channels", channels}, {"classes", classes},
           {"mean", normalization.mean}, {"std", normalization.std}}
          .dump();
}

std::optional<TrainedImages> TrainedImages::in(const checkpoint::Metadata& metadata) {
  const auto input = ImageInput::in(metadata);
  if (!input) return std::nullopt;
  TrainedImages trained{.input = *input, .class_names = {}};
  const auto names = metadata.find(tokenizers::kTargets);
  const json told = names == metadata.end() ? json() : parse_json(names->second);
  const bool has_all = told.is_array() && std::ssize(told) == input->classes &&
                       std::ranges::all_of(told, [](const json& name) { return name.is_string(); });
  if (has_all) trained.class_names = told.get<std::vector<std::string>>();
  return trained;
}

std::optional<TrainedImages> TrainedImages::of(const Job& job, const fs::path& weights) {
  const auto own = in(checkpoint::WeightFiles(weights).metadata());
  const fs::path at_end = RunFolder{job.output_dir}.weights();
  return own || !exists(at_end) ? own : in(checkpoint::WeightFiles(at_end).metadata());
}

TextUse use_of_images(const Job& job) {
  return tasks::catalog().reads(job.spec().task.type, {.field = kImage, .use = TextUse::label}).use;
}

std::shared_ptr<const data::Dataset> TrainedImages::without_samples(const Job& job) const {
  const auto layout = labels_pixels(job)
                          ? data::SampleLayout::masked_images(input.height, input.width, input.channels, input.classes)
                          : input.layout(use_of_images(job));
  return std::make_shared<NoSamples>(layout, class_names, nullptr, input.normalization);
}

bool is_image_run(const fs::path& folder) {
  const RunFolder run = run_at(folder);
  if (!exists(run.resolved())) return false;
  return !reads(load_job({.file = run.resolved().string(), .set = {}, .output_dir = run.path.string()})).reads_tokens();
}

std::unique_ptr<ImageModel> open_image_model(const ImageModelRequest& request) {
  const auto [job, weights] = trained_run(request.folder, request.set);
  auto model = std::make_unique<ImageModel>();
  model->context = create_rank_context(job);
  auto trained = TrainedImages::of(job, weights);
  if (!trained) trained = trained_on(*open_datasets(job).train, request.folder);
  model->class_names = trained->class_names;
  for (int64_t number = std::ssize(model->class_names); number < trained->input.classes; ++number)
    model->class_names.push_back(std::to_string(number));
  model->files = datasets::image_files(request.files);
  model->use = use_of_images(job);
  model->options = options_of(job, trained->input);
  model->labels_pixels = labels_pixels(job);
  model->datasets = datasets_of(
      job, model->labels_pixels ? trained->without_samples(job)
                                : datasets::given_images(model->files, model->options, model->class_names, model->use));
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  model->mirrors = job.spec().eval.hflip;
  model->format = input_format(job.spec(), *model->datasets.train, model->context);
  return model;
}

}  // namespace gputrain::app
