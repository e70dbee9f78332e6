#include "gputrain/setup/text_encoder.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/tokenizers/published.hpp"
#include "job_without_data.hpp"
#include "no_samples.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What the config.json of an encoder says that a job may leave to the data.
struct ConfigFacts {
  int64_t vocabulary = 0, positions = 0, classes = 0;
  std::vector<std::string> labels;  // empty: only numbers
  std::optional<TextUse> use;       // of a classifier: what its classes are for, if it says so
};

/// The number of classes where config.json names none, as in transformers.
constexpr int64_t kUsualClasses = 2;

ConfigFacts facts_in(const fs::path& file) {
  const json config = checkpoint::read_json_object(file);
  const models::PublishedModel published = models::published_model(config, file.string());
  ConfigFacts facts;
  for (const auto& [name, value] : published.options) {
    if (name == "vocab_size") facts.vocabulary = std::stoll(value);
    if (name == "block_size") facts.positions = std::stoll(value);
  }
  for (const auto& [name, value] : published.defaults)
    if (name == "labels") facts.labels = json::parse(value).get<std::vector<std::string>>();
  const json names = config.value("id2label", json()), count = config.value("num_labels", json());
  facts.classes = names.is_object() && !names.empty() ? std::ssize(names)
                  : count.is_number_integer()         ? count.get<int64_t>()
                                                      : kUsualClasses;
  const json problem = config.value("problem_type", json());
  if (problem == "regression" || (!problem.is_string() && facts.classes == 1)) facts.use = TextUse::number;
  if (problem == "multi_label_classification") facts.use = TextUse::labels;
  return facts;
}

JobDatasets datasets_of(const ConfigFacts& facts, std::shared_ptr<const tokenizers::Tokenizer> tokenizer) {
  JobDatasets datasets;
  data::SampleLayout layout;
  layout.fields = {{.name = kTokens, .sizes = {facts.positions}, .ragged = true}};
  layout.num_classes = facts.classes;
  layout.vocabulary = facts.vocabulary;
  datasets.train = std::make_shared<NoSamples>(layout, facts.labels, std::move(tokenizer));
  datasets.facts = {.input_shape = {facts.positions},
                    .num_classes = facts.classes,
                    .vocabulary = facts.vocabulary,
                    .class_names = facts.labels};
  return datasets;
}

TextUse use_in(const Job& job) {
  return tasks::catalog().reads(job.spec().task.type, models::catalog().reads(job.spec().model.architecture)).use;
}

void check_is_encoder(const Job& job, const fs::path& folder) {
  if (job.spec().model.architecture.name == "bert" || setting_of(job, "model.config.head") == "classifier") return;
  throw Error(ExitCode::usage, {.what = "model " + job.spec().model.architecture.name + " is no encoder of texts",
                                .where = folder.string(),
                                .hint = "bert is; for a language model, gputrain generate"});
}

std::shared_ptr<const tokenizers::Tokenizer> published_tokenizer(TextEncoder& encoder, const fs::path& path) {
  encoder.tokenizer_folder = fs::is_directory(path) ? path : path.parent_path();
  return tokenizers::read_published(path);
}

/// What the run's job says about the model and how it computes; its weights are the run's own.
Job job_of_trained(const Job& run, const ConfigFacts& facts, const std::vector<std::string>& set) {
  std::vector<std::string> kept;
  for (const config::Setting& setting : run.loaded.settings()) {
    const bool is_kept = setting.key.starts_with("model.") || setting.key == "precision" || setting.key == "device" ||
                         setting.key == "seed";
    if (is_kept && setting.key != "model.pretrained") kept.push_back(setting.key + "=" + setting.value);
  }
  return job_without_data(std::move(kept), facts.vocabulary, set);
}

void open_folder(const TextEncoderRequest& request, TextEncoder& encoder) {
  const fs::path config = request.folder / "config.json";
  const ConfigFacts facts = facts_in(config);
  std::vector<std::string> model{"model.pretrained=" + quoted(request.folder.string())};
  if (request.gives_vectors) model.push_back("model.config.head=embedder");
  model.push_back("model.type=" + models::published_model(checkpoint::read_json_object(config), config.string()).type);
  const Job job = job_without_data(std::move(model), facts.vocabulary, request.set);
  check_is_encoder(job, request.folder);
  encoder.context = create_rank_context(job);
  encoder.tokenizer = published_tokenizer(encoder, request.tokenizer.empty() ? request.folder : request.tokenizer);
  encoder.datasets = datasets_of(facts, encoder.tokenizer);
  encoder.built = build_model(job, encoder.datasets, encoder.context);
  const auto& missing = encoder.built.not_loaded.missing_parts;
  if (encoder.built.not_loaded.classes_left_out > 0 || !missing.empty())
    throw Error(ExitCode::data, {.what = "the weights have no head of this kind" +
                                         (missing.empty() ? "" : ": '" + missing.front() + "' is missing"),
                                 .where = request.folder.string()});
  encoder.use = use_in(job);
  if (encoder.use == TextUse::label && facts.use) encoder.use = *facts.use;
  encoder.columns = job.spec().data.text.columns;
  encoder.longest_text = std::min(facts.positions, job.spec().data.text.max_length.value.value_or(facts.positions));
}

void open_run(const TextEncoderRequest& request, TextEncoder& encoder) {
  const RunFolder run = run_at(request.folder);
  const Job job =
      load_job_of_weights({.file = run.resolved().string(), .set = request.set, .output_dir = run.path.string()});
  check_is_encoder(job, request.folder);
  const fs::path weights = weights_at(request.folder, job, run);
  encoder.context = create_rank_context(job);
  const fs::path own = tokenizer_of_run(job, run);
  if (!own.empty() && exists(run.model_config()) && !job.spec().model.adapter) {
    const ConfigFacts facts = facts_in(run.model_config());
    encoder.tokenizer = published_tokenizer(encoder, request.tokenizer.empty() ? own : request.tokenizer);
    encoder.datasets = datasets_of(facts, encoder.tokenizer);
    encoder.built = build_model(job_of_trained(job, facts, request.set), encoder.datasets, encoder.context);
  } else {
    encoder.datasets = open_datasets(job, Purpose::reading);
    encoder.tokenizer = encoder.datasets.train->tokenizer();
    encoder.tokenizer_kind = job.spec().data.text.tokenizer.name;
    if (!own.empty() || !request.tokenizer.empty())
      encoder.tokenizer = published_tokenizer(encoder, request.tokenizer.empty() ? own : request.tokenizer);
    check_learned_from(weights, encoder.datasets);
    encoder.built = build_model(job, encoder.datasets, encoder.context);
  }
  load_trained(weights, encoder.built);
  encoder.use = use_in(job);
  encoder.columns = job.spec().data.text.columns;
  const std::string positions = setting_of(job, "model.config.block_size");
  const int64_t most = positions == "null" ? encoder.datasets.facts.input_shape[0] : std::stoll(positions);
  encoder.longest_text = std::min(most, job.spec().data.text.max_length.value.value_or(most));
}

/// The names of the classes, numbered where they have none, as transformers does.
std::vector<std::string> names_of_classes(const models::DataFacts& facts) {
  std::vector<std::string> names = facts.class_names;
  for (int64_t i = std::ssize(names); i < facts.num_classes; ++i) names.push_back("LABEL_" + std::to_string(i));
  return names;
}

}  // namespace

bool is_text_encoder(const fs::path& folder) {
  const RunFolder run = run_at(hub::pretrained_path(folder.string()));
  if (exists(run.resolved()))
    return load_job({.file = run.resolved().string(), .set = {}, .output_dir = run.path.string()})
               .spec()
               .model.architecture.name == "bert";
  if (!exists(run.model_config())) return false;
  const auto published =
      models::published_model(checkpoint::read_json_object(run.model_config()), run.model_config().string());
  return published.type == "bert" ||
         std::ranges::find(published.defaults, std::pair<std::string, std::string>("head", "classifier")) !=
             published.defaults.end();
}

std::unique_ptr<TextEncoder> open_text_encoder(const TextEncoderRequest& asked) {
  TextEncoderRequest request = asked;
  request.folder = hub::pretrained_path(asked.folder.string());
  if (!asked.tokenizer.empty()) request.tokenizer = hub::pretrained_path(asked.tokenizer.string());
  auto encoder = std::make_unique<TextEncoder>();
  if (exists(run_at(request.folder).resolved())) {
    open_run(request, *encoder);
  } else if (exists(request.folder / "config.json")) {
    open_folder(request, *encoder);
  } else {
    throw Error(ExitCode::usage, {.what = "neither a run folder nor a model's: it has no job.resolved.yaml and no "
                                          "config.json",
                                  .where = request.folder.string(),
                                  .hint = hub::fetch_command_for(request.folder)});
  }
  if (!encoder->tokenizer && request.needs_tokenizer)
    throw Error(ExitCode::usage, {.what = "the run does not say how its tokens are spelled",
                                  .where = request.folder.string(),
                                  .hint = "--tokenizer with the folder of the published model they are of"});
  encoder->vocabulary = encoder->datasets.facts.vocabulary;
  encoder->class_names = names_of_classes(encoder->datasets.facts);
  encoder->built.model->train(false);
  return encoder;
}

}  // namespace gputrain::app
