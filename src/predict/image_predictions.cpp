#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/predict/predict.hpp"

namespace gputrain::app {
namespace {

/// Classes on a line.
constexpr int64_t kBestClasses = 5;

std::string line_of_image(const std::string& file, const std::vector<std::string>& names, const at::Tensor& row,
                          bool json) {
  const auto [probabilities, numbers] = row.topk(std::min(kBestClasses, row.numel()));
  const auto best = [&](int64_t place) { return names.at(static_cast<size_t>(numbers[place].item<int64_t>())); };
  if (!json) {
    std::string line = file;
    for (int64_t place = 0; place < numbers.numel(); ++place)
      line += fmt::format("\t{} {:.4f}", best(place), probabilities[place].item<float>());
    return line + "\n";
  }
  nlohmann::ordered_json all{{"file", file}, {"label", best(0)}, {"probability", probabilities[0].item<float>()}};
  for (int64_t number = 0; number < row.numel(); ++number)
    all["probabilities"][names.at(static_cast<size_t>(number))] = row[number].item<float>();
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string predictions_of(ImageModel& model, int64_t batch_size, bool json) {
  const auto& images = model.datasets.train;
  const data::LoaderOptions reading{.partition = {.global_batch = batch_size, .micro_batch = batch_size},
                                    .shuffle = false,
                                    .augment = false,
                                    .pads = false,
                                    .num_workers = data::automatic_workers(*images, model.context.device, 1),
                                    .steps = ceil_divide(images->size(), batch_size),
                                    .device = model.context.device};
  data::Loader loader(images, reading);
  const data::Preprocess preprocess(*images, model.format);
  const at::NoGradGuard no_grad;
  const device::Reading weights(model.built.arena->working_copy());
  std::string lines;
  size_t file = 0;
  for (int64_t step = 0; step < reading.steps; ++step) {
    const auto data = loader.next_step();
    for (const Batch& batch : data.micro_batches) {
      const nn::ForwardPass pass;
      const auto last = model.built.model->last_layer(preprocess(batch));
      const at::Tensor logits = last.head.logits ? last.head.logits(last.features) : last.features;
      const at::Tensor rows = at::softmax(logits.narrow(-1, 0, last.classes).to(at::kCPU, at::kFloat), -1);
      for (int64_t row = 0; row < batch.samples; ++row)
        lines += line_of_image(model.files.at(file++), model.class_names, rows[row], json);
    }
  }
  return lines;
}

}  // namespace gputrain::app
