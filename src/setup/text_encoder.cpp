#include "gputrain/setup/text_encoder.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/tokenizers/published.hpp"
#include "job_without_data.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

void check_is_encoder(const Job& job, const fs::path& folder) {
  if (is_encoder(job)) return;
  throw Error(ExitCode::usage, {.what = "model " + job.spec().model.architecture.name + " is no encoder of texts",
                                .where = folder.string(),
                                .hint = "bert is; for a language model, gputrain generate"});
}

std::shared_ptr<const tokenizers::Tokenizer> published_tokenizer(TextEncoder& encoder, const fs::path& path) {
  encoder.tokenizer_folder = fs::is_directory(path) ? path : path.parent_path();
  return tokenizers::read_published(path);
}

int64_t longest_text_of(const Job& job, int64_t positions) {
  return std::min(positions, job.spec().data.text.max_length.value.value_or(positions));
}

void open_folder(const TextEncoderRequest& request, TextEncoder& encoder) {
  const data::Signature known = signature_in(request.folder / "config.json");
  std::vector<std::string> head;
  if (request.gives_vectors) head.emplace_back("model.config.head=embedder");
  const Job job = job_of_published(request.folder, std::move(head), request.set);
  check_is_encoder(job, request.folder);
  encoder.context = create_rank_context(job);
  encoder.tokenizer = published_tokenizer(encoder, request.tokenizer.empty() ? request.folder : request.tokenizer);
  encoder.datasets = datasets_without_samples(job, known);
  encoder.built = build_model(job, encoder.datasets, encoder.context);
  const auto& missing = encoder.built.not_loaded.missing_parts;
  if (encoder.built.not_loaded.classes_left_out > 0 || !missing.empty())
    throw Error(ExitCode::data, {.what = "the weights have no head of this kind" +
                                         (missing.empty() ? "" : ": '" + missing.front() + "' is missing"),
                                 .where = request.folder.string()});
  encoder.use = model_of(job).use;
  if (encoder.use == TextUse::label) encoder.use = known.gives;
  encoder.columns = job.spec().data.text.columns;
  encoder.longest_text = longest_text_of(job, known.longest);
}

void open_run(const TextEncoderRequest& request, TextEncoder& encoder) {
  const RunFolder run = run_at(request.folder);
  const Job job =
      load_job_of_weights({.file = run.resolved().string(), .set = request.set, .output_dir = run.path.string()});
  check_is_encoder(job, request.folder);
  const fs::path weights = weights_at(request.folder, job, run);
  encoder.context = create_rank_context(job);
  const fs::path tokenizer = request.tokenizer.empty() ? tokenizer_of_run(job, run) : request.tokenizer;
  if (!tokenizer.empty()) {
    encoder.tokenizer = published_tokenizer(encoder, tokenizer);
    encoder.datasets = datasets_without_samples(job, signature_of_run(job, weights));
    encoder.built = build_model(job_without_data(job, request.set), encoder.datasets, encoder.context);
  } else {
    encoder.datasets = open_datasets(job, Purpose::reading);
    encoder.tokenizer = encoder.datasets.train->tokenizer();
    encoder.tokenizer_kind = job.spec().data.text.tokenizer.name;
    check_learned_from(weights, encoder.datasets);
    encoder.built = build_model(job, encoder.datasets, encoder.context);
  }
  load_trained(weights, encoder.built);
  const InputSpec model = model_of(job);
  encoder.use = model.use;
  encoder.columns = job.spec().data.text.columns;
  encoder.longest_text =
      longest_text_of(job, model.longest > 0 ? model.longest : encoder.datasets.facts.input_shape[0]);
}

/// The names of the classes, numbered where they have none, as transformers does.
std::vector<std::string> names_of_classes(const models::DataFacts& facts) {
  std::vector<std::string> names = facts.class_names;
  for (int64_t i = std::ssize(names); i < facts.num_classes; ++i) names.push_back("LABEL_" + std::to_string(i));
  return names;
}

}  // namespace

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
