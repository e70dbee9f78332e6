#include "gputrain/setup/language_model.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/generation/end_tokens.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "job_without_data.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// A gpt that gives classes, or a reward, continues no text.
void refuse_classifier(const Job& job, const fs::path& folder) {
  if (models::catalog().reads(job.spec().model.architecture).use != TextUse::label) return;
  throw Error(
      ExitCode::usage,
      {.what = "this model gives classes of texts, not the token that follows",
       .where = folder.string(),
       .hint =
           "gputrain export --format hf writes it for transformers' AutoModelForSequenceClassification; where it has "
           "learned classes, gputrain predict says them"});
}

/// The job to build the model with, and where its parts lie.
struct Plan {
  Job job;
  std::optional<data::Signature> learned;         // none: the data is opened
  fs::path folder;                                // that was asked for
  fs::path weights;                               // empty: the job's own
  fs::path tokenizer;                             // empty: that of the data
  std::optional<std::string> chat_template = {};  // a file or a name; none: that of the tokenizer
  bool adds_special_tokens = false;
  std::optional<int64_t> longest = {};  // tokens of a text, by --set; none: as many as the model reads
};

/// What --set says of the longest text, which is no size of the weights.
std::optional<int64_t> longest_in(const std::vector<std::string>& set, const Job& job) {
  const auto names_it = [](const std::string& one) { return one.starts_with("data.text.max_length="); };
  return std::ranges::any_of(set, names_it) ? job.spec().data.text.max_length.value : std::nullopt;
}

Plan plan_for_folder(const LanguageModelRequest& request) {
  Job job = job_of_published(request.folder, {}, request.set);
  refuse_classifier(job, request.folder);
  return {.job = job,
          .learned = signature_in(request.folder / "config.json"),
          .folder = request.folder,
          .weights = {},
          .tokenizer = request.tokenizer.empty() ? request.folder : request.tokenizer,
          .chat_template = job.spec().data.text.chat_template,
          .adds_special_tokens = true};
}

/// The template that the run has learned; what its job names may have changed since. None: that of the tokenizer.
std::optional<std::string> template_of_run(const Job& job, const RunFolder& run, const std::vector<std::string>& set,
                                           const fs::path& tokenizer) {
  const auto names_it = [](const std::string& one) { return one.starts_with("data.text.chat_template="); };
  const fs::path learned = run.path / kChatTemplate;
  if (!exists(learned) || std::ranges::any_of(set, names_it)) return job.spec().data.text.chat_template;
  return tokenizer == run.path ? std::nullopt : std::optional(learned.string());
}

Plan plan_for_run(const LanguageModelRequest& request, const RunFolder& run) {
  Job job = load_job_of_weights({.file = run.resolved().string(), .set = request.set, .output_dir = run.path.string()});
  refuse_classifier(job, request.folder);
  Plan plan{.job = job,
            .learned = {},
            .folder = request.folder,
            .weights = weights_at(request.folder, job, run),
            .tokenizer = request.tokenizer};
  const fs::path own = tokenizer_of_run(job, run);
  if (plan.tokenizer.empty()) plan.tokenizer = own;
  plan.chat_template = template_of_run(job, run, request.set, plan.tokenizer);
  plan.longest = longest_in(request.set, job);
  if (plan.tokenizer.empty()) return plan;
  const std::string& format = job.spec().data.train.format.name;
  // These learn from texts without begin and end.
  plan.adds_special_tokens = !own.empty() && format != "text" && format != "tokens";
  plan.learned = signature_of_run(job, plan.weights);
  plan.job = job_without_data(job, request.set);
  return plan;
}

Plan plan_for(const LanguageModelRequest& request) {
  if (const RunFolder run = run_at(request.folder); exists(run.resolved())) return plan_for_run(request, run);
  if (exists(request.folder / "config.json")) return plan_for_folder(request);
  throw Error(ExitCode::usage, {.what = "neither a run folder nor a model's: it has no job.resolved.yaml and no "
                                        "config.json",
                                .where = request.folder.string(),
                                .hint = hub::fetch_command_for(request.folder)});
}

/// Opens data and tokenizer. Where a run's data has no tokenizer, the model that it started from may have one beside
/// its weights.
void open_texts(Plan& plan, LanguageModel& opened) {
  if (plan.learned) {
    opened.published = tokenizers::read_published(plan.tokenizer);
    opened.datasets = datasets_without_samples(plan.job, *plan.learned);
  } else {
    opened.datasets = open_datasets(plan.job);
    const fs::path pretrained = plan.job.spec().model.pretrained_path();
    const bool lacks_one = plan.tokenizer.empty() && opened.datasets.train->tokenizer() == nullptr;
    if (lacks_one && fs::is_directory(pretrained)) plan.tokenizer = pretrained;
    if (!plan.tokenizer.empty()) opened.published = tokenizers::read_published(plan.tokenizer);
  }
  opened.tokenizer = opened.published ? opened.published : opened.datasets.train->tokenizer();
}

models::Model::TextLimits limits_of(const Job& job, const models::Model& model, const JobDatasets& datasets) {
  if (models::catalog().reads(job.spec().model.architecture).use != TextUse::next_token) {
    throw Error(ExitCode::usage,
                {.what = "model " + job.spec().model.architecture.name + " does not say which token follows a text",
                 .hint = "gpt does"});
  }
  if (const auto limits = model.text_limits()) return *limits;
  if (datasets.tokens_per_sample() == 0) {
    throw Error(ExitCode::usage,
                {.what = "model " + job.spec().model.architecture.name + " reads no text", .hint = "gpt does"});
  }
  return {.vocabulary = datasets.facts.num_classes, .length = datasets.tokens_per_sample()};
}

void find_text_files(LanguageModel& model) {
  TextFiles& files = model.files;
  files.folder = model.tokenizer_folder;
  files.chat_template = find_chat_template(model.chat_template, files.folder);
  files.is_other_template = model.chat_template.has_value();
  files.end_tokens = generation::end_tokens_of(files.folder, model.tokenizer.get(),
                                               files.chat_template ? &*files.chat_template : nullptr);
}

void open_parts(Plan& plan, bool needs_tokenizer, LanguageModel& opened) {
  open_texts(plan, opened);
  if (!opened.tokenizer && needs_tokenizer) {
    throw Error(ExitCode::usage,
                {.what = "the run was trained on numbers of tokens and does not say how they are spelled",
                 .where = plan.folder.string(),
                 .hint = "--tokenizer with the folder of the published model they are of"});
  }
  if (!plan.weights.empty() && !plan.learned) check_learned_from(plan.weights, opened.datasets);
  opened.built = build_model(plan.job, opened.datasets, opened.context);
  if (!plan.weights.empty()) load_trained(plan.weights, opened.built);
  opened.limits = limits_of(plan.job, *opened.built.model, opened.datasets);
  if (plan.longest) opened.limits.length = std::min(opened.limits.length, *plan.longest);
  opened.adds_special_tokens = plan.adds_special_tokens;
  if (plan.job.spec().train.cuda_graphs != "off") opened.make_graphs = device::make_captured_graphs;
  opened.chat_template = plan.chat_template;
  if (opened.published)
    opened.tokenizer_folder = fs::is_directory(plan.tokenizer) ? plan.tokenizer : plan.tokenizer.parent_path();
  find_text_files(opened);
}

}  // namespace

std::unique_ptr<LanguageModel> open_language_model(const LanguageModelRequest& asked) {
  std::optional<Plan> plan;
  try {
    LanguageModelRequest request = asked;
    request.folder = hub::pretrained_path(asked.folder.string());
    request.tokenizer = hub::pretrained_path(asked.tokenizer.string());
    plan = plan_for(request);
  } catch (const Error& mistake) {
    fail_before_rendezvous(mistake);
  }
  auto opened = std::make_unique<LanguageModel>();
  opened->context = create_rank_context(plan->job);
  try {
    open_parts(*plan, asked.needs_tokenizer, *opened);
  } catch (const std::exception& failure) {
    fail(opened->context, failure);
  }
  return opened;
}

}  // namespace gputrain::app
