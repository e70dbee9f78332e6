#include "gputrain/setup/image_model.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// How the run's validation data is read, with what it left to the data.
data::ImageOptions options_of(const Job& job, const data::Signature& learned) {
  data::ImageOptions options = job.spec().data.image;
  const auto& sizes = learned.layout.input().sizes;
  if (options.size.is_auto() && !learned.labels_pixels)
    options.size.value = config::OneOrMore<int64_t>{sizes[0], sizes[1]};
  options.channels.value = sizes[2];
  options.mean = learned.normalization->mean;
  options.std = learned.normalization->std;
  return options;
}

}  // namespace

std::unique_ptr<ImageModel> open_image_model(const ImageModelRequest& request) {
  const auto [job, weights] = trained_run(request.folder, request.set);
  auto model = std::make_unique<ImageModel>();
  model->context = create_rank_context(job);
  const data::Signature learned = signature_of_run(job, weights);
  if (!learned.layout.is_image() || learned.layout.num_classes == 0 || !learned.normalization)
    throw Error(ExitCode::usage, {.what = "the run does not learn from images", .where = request.folder.string()});
  model->class_names = learned.class_names;
  for (int64_t number = std::ssize(model->class_names); number < learned.layout.num_classes; ++number)
    model->class_names.push_back(std::to_string(number));
  model->files = datasets::image_files(request.files);
  model->use = learned.gives;
  model->options = options_of(job, learned);
  model->labels_pixels = learned.labels_pixels;
  model->datasets = datasets_of(
      job, model->labels_pixels ? learned.without_samples()
                                : datasets::given_images(model->files, model->options, model->class_names, model->use));
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  model->mirrors = job.spec().eval.hflip;
  model->format = input_format(job.spec(), *model->datasets.train, model->context);
  return model;
}

}  // namespace gputrain::app
