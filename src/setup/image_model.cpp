#include "gputrain/setup/image_model.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kImageInput = "image_input";

/// What the weights were trained on.
struct Trained {
  ImageInput input;
  std::vector<std::string> class_names;
};

std::optional<Trained> trained_in(const checkpoint::Metadata& metadata) {
  const auto input = ImageInput::in(metadata);
  if (!input) return std::nullopt;
  Trained trained{.input = *input, .class_names = {}};
  const auto names = metadata.find(tokenizers::kTargets);
  const json told = names == metadata.end() ? json() : json::parse(names->second, nullptr, false);
  if (told.is_array() && std::ranges::all_of(told, [](const json& name) { return name.is_string(); }))
    trained.class_names = told.get<std::vector<std::string>>();
  return trained;
}

Trained trained_on(const data::Dataset& data, const fs::path& folder) {
  const auto input = ImageInput::of(data);
  if (!input)
    throw Error(ExitCode::usage, {.what = "the run does not learn classes of images", .where = folder.string()});
  return {.input = *input, .class_names = data.class_names()};
}

/// How the run's validation data is read, with what it left to the data.
data::ImageOptions options_of(const Job& job, const ImageInput& input) {
  data::ImageOptions options = job.spec().data.image;
  if (options.size.is_auto() && input.height != input.width)
    throw Error(ExitCode::usage, {.what = "the run's images are no squares, and its job sets no common size",
                                  .where = "data.image.size",
                                  .hint = "--set data.image.size=N"});
  if (options.size.is_auto()) options.size.value = input.height;
  options.channels.value = input.channels;
  options.mean = input.normalization.mean;
  options.std = input.normalization.std;
  return options;
}

Job job_of(const fs::path& folder, const std::vector<std::string>& set) {
  const RunFolder run{folder};
  if (!exists(run.resolved()))
    throw Error(ExitCode::usage, {.what = "not a run folder: it has no job.resolved.yaml", .where = folder.string()});
  return load_job({.file = run.resolved().string(), .set = set, .output_dir = folder.string()});
}

bool reads_images(const Job& job) { return !models::catalog().reads(job.spec().model.architecture).reads_tokens(); }

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
    const json told = json::parse(found->second);
    return ImageInput{.height = told.at("height"),
                      .width = told.at("width"),
                      .channels = told.at("channels"),
                      .classes = told.at("classes"),
                      .normalization = {.mean = told.at("mean"), .std = told.at("std")}};
  } catch (const json::exception&) {  // written by another program
    return std::nullopt;
  }
}

void ImageInput::note(checkpoint::Metadata& metadata) const {
  metadata[kImageInput] =
      json{{"height", height},           {"width", width},          {"channels", channels}, {"classes", classes},
           {"mean", normalization.mean}, {"std", normalization.std}}
          .dump();
}

bool is_image_run(const fs::path& folder) {
  if (!exists(RunFolder{folder}.resolved())) return false;
  return reads_images(job_of(folder, {}));
}

std::unique_ptr<ImageModel> open_image_model(const ImageModelRequest& request) {
  const Job job = job_of(request.folder, request.set);
  const fs::path weights = weights_of_run(job, RunFolder{request.folder});
  if (weights.empty())
    throw Error(ExitCode::data, {.what = "there are no trained weights",
                                 .where = request.folder.string(),
                                 .hint = "a run writes them at its end, and in every checkpoint"});
  auto model = std::make_unique<ImageModel>();
  model->context = create_rank_context(job);
  auto trained = trained_in(checkpoint::WeightFiles(weights).metadata());
  if (!trained) trained = trained_on(*open_datasets(job).train, request.folder);
  model->class_names = std::move(trained->class_names);
  for (int64_t number = std::ssize(model->class_names); number < trained->input.classes; ++number)
    model->class_names.push_back(std::to_string(number));
  model->files = datasets::image_files(request.files);
  model->datasets =
      datasets_of(job, datasets::given_images(model->files, options_of(job, trained->input), model->class_names));
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  model->format = input_format(job.spec(), *model->datasets.train, model->context);
  return model;
}

}  // namespace gputrain::app
