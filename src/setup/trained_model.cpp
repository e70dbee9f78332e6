#include "gputrain/setup/trained_model.hpp"

#include "gputrain/setup/image_model.hpp"
#include "gputrain/setup/trained_weights.hpp"

namespace gputrain::app {
namespace {

/// What the model must know of its data.
JobDatasets data_of_weights(const Job& job, const std::filesystem::path& weights) {
  const auto trained = TrainedImages::of(job, weights);
  if (!trained) return open_datasets(job);
  return datasets_of(job, trained->without_samples(job));
}

}  // namespace

std::unique_ptr<TrainedModel> open_trained_model(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& set) {
  const auto [job, weights] = trained_run(folder, set);
  auto model = std::make_unique<TrainedModel>();
  model->context = create_rank_context(job);
  model->datasets = data_of_weights(job, weights);
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  return model;
}

}  // namespace gputrain::app
