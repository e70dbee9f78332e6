#include "gputrain/setup/trained_model.hpp"

#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"

namespace gputrain::app {

std::unique_ptr<TrainedModel> open_trained_model(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& set) {
  const auto [job, weights] = trained_run(folder, set);
  auto model = std::make_unique<TrainedModel>();
  model->context = create_rank_context(job);
  model->datasets = datasets_without_samples(job, signature_of_run(job, weights));
  model->built = build_model(job, model->datasets, model->context);
  load_trained(weights, model->built);
  model->built.model->train(false);
  return model;
}

}  // namespace gputrain::app
