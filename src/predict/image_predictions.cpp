#include <algorithm>
#include <set>

#include <ATen/ops/topk.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/predict/predict.hpp"
#include "image_options.hpp"
#include "json_line.hpp"

namespace gputrain::app {
namespace {

/// Number of classes on a line.
constexpr int64_t kBestClasses = 5;

using Json = nlohmann::ordered_json;

/// Output of a model for an image, with names.
struct Seen {
  const std::string& file;
  const std::vector<std::string>& names;
  const at::Tensor& values;  // float [names]

  const std::string& name(int64_t number) const { return names.at(static_cast<size_t>(number)); }
  float value(int64_t number) const { return values[number].item<float>(); }
  Json by_name() const {
    Json all = Json::object();
    for (int64_t number = 0; number < values.numel(); ++number) all[name(number)] = value(number);
    return all;
  }
};

std::string best_classes(const Seen& seen, bool json) {
  const at::Tensor numbers = std::get<1>(seen.values.topk(std::min(kBestClasses, seen.values.numel())));
  const auto best = [&](int64_t place) { return numbers[place].item<int64_t>(); };
  if (json)
    return json_line({{"file", seen.file},
                      {"label", seen.name(best(0))},
                      {"probability", seen.value(best(0))},
                      {"probabilities", seen.by_name()}});
  std::string line = seen.file;
  for (int64_t place = 0; place < numbers.numel(); ++place)
    line += fmt::format("\t{} {:.4f}", seen.name(best(place)), seen.value(best(place)));
  return line + "\n";
}

std::string likely_classes(const Seen& seen, bool json) {
  constexpr float kLikely = 0.5F;
  std::string line = seen.file;
  Json likely = Json::array();
  for (int64_t number = 0; number < seen.values.numel(); ++number) {
    if (seen.value(number) <= kLikely) continue;
    line += fmt::format("\t{} {:.4f}", seen.name(number), seen.value(number));
    likely.push_back(seen.name(number));
  }
  if (!json) return line + "\n";
  return json_line({{"file", seen.file}, {"labels", likely}, {"probabilities", seen.by_name()}});
}

std::string numbers(const Seen& seen, bool json) {
  if (json) return json_line({{"file", seen.file}, {"numbers", seen.by_name()}});
  std::string line = seen.file;
  for (int64_t number = 0; number < seen.values.numel(); ++number)
    line += fmt::format("\t{} {}", seen.name(number), seen.value(number));
  return line + "\n";
}

std::string line_of_image(Target target, const Seen& seen, bool json) {
  if (target == Target::number) return numbers(seen, json);
  return target == Target::labels ? likely_classes(seen, json) : best_classes(seen, json);
}

}  // namespace

ImagePredictions predictions_of(trained::Model& model, const ImagesToSee& wanted) {
  const auto [files, others] = datasets::image_files(wanted.files);
  const auto seen = app::datasets_of(
      model.job, datasets::given_images(files, image_options_of(model), model.class_names, model.signature.gives));
  ImagePredictions predictions{.lines = {}, .unreadable = others};
  std::set<int64_t> unreadable;
  const data::LoaderOptions reading{.partition = {.global_batch = wanted.batch_size, .micro_batch = wanted.batch_size},
                                    .shuffle = false,
                                    .augment = false,
                                    .pads = false,
                                    .num_workers = data::automatic_workers(*seen.train, model.context.device, 1),
                                    .steps = ceil_divide(seen.train->size(), wanted.batch_size),
                                    .max_bad_fraction = 1,
                                    .on_bad_sample =
                                        [&](const data::BadSample& bad) {
                                          unreadable.insert(bad.index);
                                          predictions.unreadable.push_back(bad.message);
                                        },
                                    .device = model.context.device};
  data::Loader loader(seen.train, reading);
  const data::Preprocess preprocess(*seen.train, app::input_format(model.job.spec(), *seen.train, model.context));
  trained::Forward forward(model);
  int64_t image = 0;
  for (int64_t step = 0; step < reading.steps; ++step) {
    const auto data = loader.next_step();
    for (const Batch& batch : data.micro_batches) {
      const at::Tensor rows = trained::with_names(
          seen.task->outputs(forward(preprocess(batch)).to(at::kCPU, at::kFloat)), model.class_names);
      for (int64_t row = 0; row < batch.samples; ++row, ++image) {
        if (unreadable.contains(image)) continue;
        const std::string& file = files.at(static_cast<size_t>(image));
        predictions.lines += line_of_image(
            model.signature.gives, {.file = file, .names = model.class_names, .values = rows[row]}, wanted.json);
      }
    }
  }
  return predictions;
}

}  // namespace gputrain::app
