#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/generation/end_tokens.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::trained {
namespace {

namespace fs = std::filesystem;

/// Returns the job that the model is built by. It reads no base whose weights are replaced, and its ranks share nothing
/// unless --set says so.
app::Job job_to_build(const Source& source) {
  app::JobSpec spec = source.job.spec();
  if (!source.weights.empty() && !spec.model.adapter) spec.model.pretrained.reset();
  if (!source.shares_model) spec.parallel = {.timeout = spec.parallel.timeout};
  app::Job job = source.job;
  job.loaded = job.loaded.with(std::move(spec));
  return job;
}

/// Returns the names of the classes. Those without a name are numbered, those of texts like transformers'.
std::vector<std::string> names_of_classes(const data::Signature& signature) {
  std::vector<std::string> names = signature.class_names;
  if (signature.gives == Target::next_token) return names;
  for (int64_t i = std::ssize(names); i < signature.layout.outputs; ++i)
    names.push_back((signature.longest > 0 ? "LABEL_" : "") + std::to_string(i));
  return names;
}

/// Opens data and tokenizer. If a run's data has no tokenizer, the model that it started from may have one beside its
/// weights.
void open_texts(Source& source, Spelling spelling, Model& model) {
  if (source.tokenizer.empty() && spelling == Spelling::needed) {
    if (!source.training_data) source.training_data = app::open_datasets(source.job, app::Purpose::reading);
    model.tokenizer = source.training_data->train->tokenizer();
    model.tokenizer_kind = source.job.spec().data.text.tokenizer.name;
    const fs::path pretrained = source.job.spec().model.pretrained_path();
    if (!model.tokenizer && fs::is_directory(pretrained)) source.tokenizer = pretrained;
  }
  if (!source.tokenizer.empty()) {
    model.tokenizer = model.published = tokenizers::read_published(source.tokenizer);
    model.tokenizer_folder = fs::is_directory(source.tokenizer) ? source.tokenizer : source.tokenizer.parent_path();
  }
  if (!model.tokenizer && spelling == Spelling::needed)
    throw Error(ExitCode::usage,
                {.what = "the run was trained on numbers of tokens and does not say how they are spelled",
                 .where = source.folder.string(),
                 .hint = "--tokenizer with the folder of the published model they are of"});
  if (source.training_data) app::check_learned_from(source.weights, *source.training_data);
}

/// Throws Error(data) if a part of the model has no values: it would give random classes.
void check_whole(const Source& source, const app::BuiltModel& built) {
  const auto& missing = built.not_loaded.missing_parts;
  if (built.not_loaded.classes_left_out == 0 && missing.empty()) return;
  throw Error(ExitCode::data, {.what = "the weights have no head of this kind" +
                                       (missing.empty() ? "" : ": '" + missing.front() + "' is missing"),
                               .where = source.folder.string()});
}

void find_text_files(Model& model) {
  app::TextFiles& files = model.files;
  files.folder = model.tokenizer_folder;
  files.chat_template = app::find_chat_template(model.chat_template, files.folder);
  files.is_other_template = model.chat_template.has_value();
  files.end_tokens = generation::end_tokens_of(files.folder, model.tokenizer.get(),
                                               files.chat_template ? &*files.chat_template : nullptr);
}

void note_texts(const Source& source, const app::Job& job, Model& model) {
  const auto limits = model.built.model->text_limits();
  model.vocabulary = limits ? limits->vocabulary : model.datasets.facts.vocabulary;
  model.longest_text = limits ? limits->length : model.datasets.facts.input_shape[0];
  if (source.longest) model.longest_text = std::min(model.longest_text, *source.longest);
  model.columns = job.spec().data.text.columns;
  if (!source.continues_texts()) return;
  model.adds_special_tokens = source.adds_special_tokens && model.published;
  if (job.spec().train.cuda_graphs != "off") model.make_graphs = device::make_captured_graphs;
  model.chat_template = source.chat_template;
  find_text_files(model);
}

void open_parts(Source& source, Spelling spelling, const app::Job& job, Model& model) {
  if (source.reads_texts()) open_texts(source, spelling, model);
  model.datasets = app::datasets_without_samples(job, source.signature);
  model.built = app::build_model(job, model.datasets, model.context);
  if (source.weights.empty()) {
    check_whole(source, model.built);
    if (model.built.adapter) app::check_base(source.folder, model.built);
  } else {
    app::load_trained(source.weights, model.built);
  }
  model.built.model->train(false);
  model.class_names = names_of_classes(source.signature);
  if (source.reads_texts()) note_texts(source, job, model);
  model.signature = std::move(source.signature);
}

}  // namespace

std::unique_ptr<Model> open(Source source, Spelling spelling) {
  const app::Job job = job_to_build(source);
  auto model = std::make_unique<Model>(source.job);
  model->context = app::create_rank_context(job);
  try {
    open_parts(source, spelling, job, *model);
  } catch (const std::exception& failure) {
    app::fail(model->context, failure);
  }
  return model;
}

}  // namespace gputrain::trained
