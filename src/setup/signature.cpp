#include "gputrain/setup/signature.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/tokenizers/published.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "job_without_data.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kImageInput = "image_input";

/// What weights of images tell beside those: the names of their classes.
std::vector<std::string> names_in(const checkpoint::Metadata& metadata, int64_t classes) {
  const auto names = metadata.find(tokenizers::kTargets);
  const json told = names == metadata.end() ? json() : parse_json(names->second);
  const bool has_all = told.is_array() && std::ssize(told) == classes &&
                       std::ranges::all_of(told, [](const json& name) { return name.is_string(); });
  return has_all ? told.get<std::vector<std::string>>() : std::vector<std::string>();
}

data::SampleLayout layout_of_images(const InputSpec& model, const data::SampleLayout& known) {
  const auto& sizes = known.input().sizes;
  const bool has_numbers = model.use == TextUse::number || model.use == TextUse::labels;
  const auto make = model.labels_pixels ? data::SampleLayout::masked_images
                    : has_numbers       ? data::SampleLayout::images_with_numbers
                                        : data::SampleLayout::images;
  return make(sizes[0], sizes[1], sizes[2], known.num_classes);
}

/// What the weights say of images or, as a checkpoint does not, those that the run wrote at its end.
std::optional<data::Signature> images_of_run(const Job& job, const fs::path& weights) {
  auto images = images_in(checkpoint::WeightFiles(weights).metadata());
  const fs::path at_end = RunFolder{job.output_dir}.weights();
  if (!images && exists(at_end)) images = images_in(checkpoint::WeightFiles(at_end).metadata());
  if (!images) return images;
  const InputSpec model = model_of(job);
  images->gives = model.use;
  images->labels_pixels = model.labels_pixels;
  images->layout = layout_of_images(model, images->layout);
  return images;
}

/// The number of classes where config.json names none, as in transformers.
constexpr int64_t kUsualClasses = 2;

}  // namespace

ModelKind kind_of(const fs::path& asked) {
  const RunFolder run = run_at(hub::pretrained_path(asked.string()));
  if (exists(run.resolved())) {
    const Job job = load_job({.file = run.resolved().string(), .set = {}, .output_dir = run.path.string()});
    if (!models::catalog().reads(job.spec().model.architecture).reads_tokens()) return ModelKind::other;
    return is_encoder(job) ? ModelKind::text_encoder : ModelKind::language_model;
  }
  if (!exists(run.model_config())) return ModelKind::language_model;
  return signature_in(run.model_config()).gives == TextUse::next_token ? ModelKind::language_model
                                                                       : ModelKind::text_encoder;
}

bool is_encoder(const Job& job) {
  const InputSpec model = models::catalog().reads(job.spec().model.architecture);
  return model.reads_tokens() && model.use != TextUse::next_token;
}

InputSpec model_of(const Job& job) {
  InputSpec model = models::catalog().reads(job.spec().model.architecture);
  if (!model.reads_tokens() && !model.labels_pixels) model.use = TextUse::label;
  return tasks::catalog().reads(job.spec().task.type, model);
}

data::Signature signature_of(const Job& job, const JobDatasets& datasets) {
  const InputSpec model = model_of(job);
  data::Signature known = data::Signature::of(*datasets.train, model);
  // As models compute it: the places that they have do not depend on the samples that there are.
  const auto& facts = datasets.facts;
  if (model.reads_tokens())
    known.longest = model.longest > 0 ? model.longest : std::max(facts.input_shape[0], facts.longest_text);
  return known;
}

data::Signature signature_of_run(const Job& job, const fs::path& weights) {
  const RunFolder run{job.output_dir};
  if (const fs::path own = run.signature(); exists(own))
    return data::Signature::from(read_json_text(own), own.string());
  const InputSpec model = model_of(job);
  if (!model.reads_tokens()) {
    if (auto images = images_of_run(job, weights)) return *images;
  }
  if (model.reads_tokens() && exists(run.model_config()) && !job.spec().model.adapter) {
    data::Signature known = signature_in(run.model_config());
    known.gives = model.use;
    return known;
  }
  const int64_t longest = model.longest > 0 ? model.longest : job.spec().data.text.max_length.value.value_or(0);
  if (const fs::path tokenizer = tokenizer_of_run(job, run);
      model.reads_tokens() && !is_encoder(job) && !tokenizer.empty() && longest > 0) {
    const int64_t vocabulary = tokenizers::read_published(tokenizer)->vocabulary_size();
    return {.gives = model.use, .longest = longest, .layout = data::SampleLayout::tokens(longest, vocabulary)};
  }
  const JobDatasets datasets = open_datasets(job, Purpose::reading);
  check_learned_from(weights, datasets);
  return signature_of(job, datasets);
}

data::Signature signature_in(const fs::path& file) {
  const json config = checkpoint::read_json_object(file);
  const models::PublishedModel published = models::published_model(config, file.string());
  data::Signature known{.gives = published.type == "bert" ? TextUse::label : TextUse::next_token};
  int64_t& positions = known.longest = 1;
  for (const auto& [name, value] : published.options) {
    if (name == "vocab_size") known.layout.vocabulary = std::stoll(value);
    if (name == "block_size") positions = std::stoll(value);
  }
  for (const auto& [name, value] : published.defaults) {
    if (name == "labels") known.class_names = json::parse(value).get<std::vector<std::string>>();
    if (name == "head" && value == "classifier") known.gives = TextUse::label;
  }
  if (known.gives == TextUse::next_token) {
    known.layout = data::SampleLayout::tokens(positions, known.layout.vocabulary);
    return known;
  }
  const json names = config.value("id2label", json()), count = config.value("num_labels", json());
  known.layout.fields = {{.name = kTokens, .sizes = {positions}, .ragged = true}};
  known.layout.num_classes = names.is_object() && !names.empty() ? std::ssize(names)
                             : count.is_number_integer()         ? count.get<int64_t>()
                                                                 : kUsualClasses;
  const json problem = config.value("problem_type", json());
  if (problem == "regression" || (!problem.is_string() && known.layout.num_classes == 1)) known.gives = TextUse::number;
  if (problem == "multi_label_classification") known.gives = TextUse::labels;
  return known;
}

JobDatasets datasets_without_samples(const Job& job, const data::Signature& signature) {
  JobDatasets datasets;
  datasets.train = signature.without_samples();
  datasets.facts = facts_of(job, *datasets.train);
  if (signature.longest == 0) return datasets;
  const int64_t asked = models::catalog().reads(job.spec().model.architecture).longest;
  datasets.facts.input_shape = {asked > 0 ? asked : signature.longest};
  datasets.facts.longest_text = 0;  // the model has the places that it was trained with
  return datasets;
}

void note_images(const data::Dataset& learned, checkpoint::Metadata& metadata) {
  const data::SampleLayout& layout = learned.layout();
  const auto normalization = learned.normalization();
  if (!layout.is_image() || layout.num_classes == 0 || !normalization) return;
  const auto& sizes = layout.input().sizes;
  metadata[kImageInput] = json{{"height", sizes[0]},          {"width", sizes[1]},
                               {"channels", sizes[2]},        {"classes", layout.num_classes},
                               {"mean", normalization->mean}, {"std", normalization->std}}
                              .dump();
}

std::optional<data::Signature> images_in(const checkpoint::Metadata& metadata) {
  const auto found = metadata.find(kImageInput);
  if (found == metadata.end()) return std::nullopt;
  try {
    const json told = parse_json(found->second);
    const int64_t height = told.at("height"), width = told.at("width"), channels = told.at("channels"),
                  classes = told.at("classes");
    if (std::min({height, width, channels, classes}) < 1) return std::nullopt;
    return data::Signature{.layout = data::SampleLayout::images(height, width, channels, classes),
                           .class_names = names_in(metadata, classes),
                           .normalization = data::Normalization{.mean = told.at("mean"), .std = told.at("std")}};
  } catch (const json::exception&) {  // written by another program
    return std::nullopt;
  }
}

}  // namespace gputrain::app
