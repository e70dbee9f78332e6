#include "signatures.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::trained {
namespace {

namespace fs = std::filesystem;
using data::SampleLayout;
using data::Signature;
using nlohmann::json;

/// Number of classes if config.json names none, as in transformers.
constexpr int64_t kUsualClasses = 2;

int64_t classes_in(const json& config) {
  const json names = config.value("id2label", json());
  for (const char* key : {"num_labels", "num_classes"}) {  // keys of transformers and timm
    const json count = config.value(key, json());
    if (!(names.is_object() && !names.empty()) && count.is_number_integer()) return count.get<int64_t>();
  }
  return names.is_object() && !names.empty() ? std::ssize(names) : kUsualClasses;
}

/// Returns the target of a classifier of texts, by transformers' problem_type.
Target given_by_classifier(const json& config, int64_t classes) {
  const json problem = config.value("problem_type", json());
  if (problem == "regression" || (!problem.is_string() && classes == 1)) return Target::number;
  return problem == "multi_label_classification" ? Target::labels : Target::label;
}

/// Returns a number that is always in a family's options.
int64_t size_in(const models::PublishedModel& published, const std::string& name) {
  const auto found = std::ranges::find(published.options, name, [](const auto& option) { return option.first; });
  return found == published.options.end() ? 1 : std::stoll(found->second);
}

Signature texts_in(const json& config, const fs::path& file, const InputSpec& model) {
  const models::PublishedModel published = models::published_model(config, file.string());
  Signature known{.gives = model.target, .longest = size_in(published, "block_size")};
  const int64_t vocabulary = size_in(published, "vocab_size");
  if (known.gives == Target::next_token) {
    known.layout = SampleLayout::tokens(known.longest, vocabulary);
    return known;
  }
  known.layout.fields = {{.name = kTokens, .sizes = {known.longest}, .ragged = true}};
  known.layout.vocabulary = vocabulary;
  known.layout.outputs = classes_in(config);
  known.class_names = models::class_names_in(config);
  if (known.gives == Target::label) known.gives = given_by_classifier(config, known.layout.outputs);
  return known;
}

Signature images_in(const json& config, const fs::path& file) {
  const auto size = models::image_size_in(config);
  if (!size)
    throw Error(ExitCode::data, {.what = "it does not say how large the model's images are", .where = file.string()});
  constexpr int64_t kChannels = 3;
  return {.gives = Target::label,
          .layout = SampleLayout::images(size->height, size->width, kChannels, classes_in(config)),
          .class_names = models::class_names_in(config),
          .normalization = models::timm_images_in(config).normalization};
}

SampleLayout layout_of_images(const InputSpec& model, const SampleLayout& known) {
  const auto& sizes = known.input().sizes;
  const bool has_numbers = model.target == Target::number || model.target == Target::labels;
  const auto make = model.target == Target::pixels ? SampleLayout::masked_images
                    : has_numbers                  ? SampleLayout::images_with_numbers
                                                   : SampleLayout::images;
  return make(sizes[0], sizes[1], sizes[2], known.outputs);
}

/// Returns the images in the metadata of the weights or, as a checkpoint has none, of those from the run's end.
std::optional<Signature> images_of_run(const app::Job& job, const fs::path& weights) {
  auto images = app::images_in(checkpoint::WeightFiles(weights).metadata());
  const fs::path at_end = app::RunFolder{job.output_dir}.weights();
  if (!images && exists(at_end)) images = app::images_in(checkpoint::WeightFiles(at_end).metadata());
  if (!images) return images;
  const InputSpec model = app::model_of(job);
  images->gives = app::given_by(job);
  images->layout = layout_of_images(model, images->layout);
  return images;
}

}  // namespace

Signature signature_of_published(const app::Job& job, const fs::path& file) {
  const json config = checkpoint::read_json_object(file);
  const InputSpec model = models::catalog().reads(job.spec().model.architecture);
  return model.reads_tokens() ? texts_in(config, file, model) : images_in(config, file);
}

RunSignature signature_of_run(const app::Job& job, const fs::path& weights) {
  const app::RunFolder run{job.output_dir};
  if (const fs::path own = run.signature(); exists(own)) {
    RunSignature known{Signature::from(read_json_text(own), own.string())};
    known.signature.gives = app::given_by(job);  // --set may ask for another head
    if (known.signature.reads_texts() != models::catalog().reads(job.spec().model.architecture).reads_tokens())
      throw Error(ExitCode::data,
                  {.what = "not what a run says of its model: its \"longest\" is of a model of another kind",
                   .where = own.string(),
                   .hint = "without this file, the run's training data tells the same"});
    return known;
  }
  const InputSpec model = models::catalog().reads(job.spec().model.architecture);
  if (!model.reads_tokens()) {
    if (auto images = images_of_run(job, weights)) return {std::move(*images)};
  }
  if (model.reads_tokens() && exists(run.model_config()) && !job.spec().model.adapter) {
    Signature known = texts_in(checkpoint::read_json_object(run.model_config()), run.model_config(), model);
    known.gives = app::given_by(job);
    return {std::move(known)};
  }
  const int64_t longest = model.longest > 0 ? model.longest : job.spec().data.text.max_length.value.value_or(0);
  if (const fs::path tokenizer = tokenizer_of_run(job, run);
      app::given_by(job) == Target::next_token && !tokenizer.empty() && longest > 0) {
    const int64_t vocabulary = tokenizers::read_published(tokenizer)->vocabulary_size();
    return {{.gives = Target::next_token, .longest = longest, .layout = SampleLayout::tokens(longest, vocabulary)}};
  }
  RunSignature opened{.signature = {}, .training_data = app::open_datasets(job, app::Purpose::reading)};
  app::check_learned_from(weights, *opened.training_data);
  opened.signature = app::signature_of(job, *opened.training_data);
  return opened;
}

fs::path tokenizer_of_run(const app::Job& job, const app::RunFolder& run) {
  const config::Choice& kind = job.spec().data.text.tokenizer;
  const fs::path named = tokenizers::published_path(kind, job.spec().model.pretrained_path());
  return !named.empty() && tokenizers::is_published(run.path) ? run.path : named;
}

}  // namespace gputrain::trained
