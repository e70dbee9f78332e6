// Search for the model of a folder: a run, one of its checkpoints, a published model, or an adapter for one.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/trained/model.hpp"
#include "signatures.hpp"

namespace gputrain::trained {
namespace {

namespace fs = std::filesystem;

/// Returns whether --set changes a key, one below it, or a group that it is in.
bool sets(const Request& request, const std::string& key) {
  return std::ranges::any_of(request.set, [&](const std::string& one) {
    const std::string set = one.substr(0, one.find('='));
    return set == key || set.starts_with(key + ".") || key.starts_with(set + ".");
  });
}

/// Quotes a text for YAML.
std::string quoted(const std::string& text) {
  std::string yaml = "'";
  for (const char c : text) yaml += c == '\'' ? "''" : std::string(1, c);
  return yaml + "'";
}

/// Makes a job that only says which published model it is, with the settings of `more` and --set.
app::Job job_of(const fs::path& published, const std::vector<std::string>& more, const Request& request) {
  const fs::path config = published / "config.json";
  const auto model = models::published_model(checkpoint::read_json_object(config), config.string());
  std::vector<std::string> set{"model.type=" + model.type, "model.pretrained=" + quoted(published.string()),
                               "data.train.format=synthetic"};
  if (request.gives_vectors)
    for (const auto& [name, value] : model.vectors) set.push_back("model.config." + name + "=" + value);
  set.insert(set.end(), more.begin(), more.end());
  set.insert(set.end(), request.set.begin(), request.set.end());
  return app::load_job({.file = {}, .set = std::move(set), .output_dir = {}});
}

Source published_source(const Request& request, const fs::path& published, const std::vector<std::string>& more) {
  Source source{.folder = request.folder,
                .job = job_of(published, more, request),
                .shares_model = sets(request, "parallel"),
                .signature = {},
                .weights = {},
                .tokenizer = {}};
  source.signature = signature_of_published(source.job, published / "config.json");
  if (!source.reads_texts()) return source;
  source.tokenizer = request.tokenizer.empty() ? published : request.tokenizer;
  source.chat_template = source.job.spec().data.text.chat_template;
  source.adds_special_tokens = true;
  if (!source.continues_texts() || sets(request, "data.text.max_length"))
    source.longest = source.job.spec().data.text.max_length.value;
  return source;
}

/// Throws Error(usage) for an adapter of a model with classes, by PEFT's task_type, whose base has none.
void check_head(const nlohmann::json& adapter, const Source& base) {
  const auto task = adapter.value("task_type", nlohmann::json());
  const Target& gives = base.signature.gives;
  const bool has_classes = gives == Target::label || gives == Target::labels || gives == Target::number;
  if (!(task == "SEQ_CLS" && !has_classes) && !(task == "TOKEN_CLS" && gives != Target::tags)) return;
  throw Error(ExitCode::usage, {.what = "the adapter gives classes, and its base " + what_it_gives(base.signature),
                                .where = base.folder.string(),
                                .hint = "name the run that trained it, or its export with --merge"});
}

/// Finds the base that an adapter's adapter_config.json names; the job loads the adapter.
Source adapter_source(Request request) {
  const fs::path config = request.folder / models::kAdapterConfig;
  const auto told = checkpoint::read_json_object(config);
  const auto base = told.find("base_model_name_or_path");
  if (base == told.end() || !base->is_string() || base->get<std::string>().empty())
    throw Error(ExitCode::data, {.what = "it names no base_model_name_or_path", .where = config.string()});
  const fs::path published = hub::pretrained_path(base->get<std::string>());
  if (!exists(published / "config.json"))
    throw Error(ExitCode::data, {.what = "there is no model for the adapter in " + published.string(),
                                 .where = config.string(),
                                 .hint = hub::fetch_command_for(published)});
  request.gives_vectors = false;  // the adapter was trained with the head that the base has
  Source source = published_source(
      request, published, {"model.adapter.type=lora", "model.adapter.pretrained=" + quoted(request.folder.string())});
  check_head(told, source);
  if (request.tokenizer.empty() && tokenizers::is_published(request.folder)) source.tokenizer = request.folder;
  const fs::path learned = request.folder / app::kChatTemplate;
  if (exists(learned) && !sets(request, "data.text.chat_template")) source.chat_template = learned.string();
  return source;
}

/// Returns the template that the run has learned, because the job's may have changed since. None: that of the
/// tokenizer.
std::optional<std::string> template_of_run(const app::Job& job, const app::RunFolder& run, const Request& request,
                                           const fs::path& tokenizer) {
  const fs::path learned = run.path / app::kChatTemplate;
  if (!exists(learned) || sets(request, "data.text.chat_template")) return job.spec().data.text.chat_template;
  return tokenizer == run.path ? std::nullopt : std::optional(learned.string());
}

/// Takes the size of images that --set asks for: the model is built for it.
void take_image_size(const app::Job& job, data::Signature& signature) {
  const auto& size = job.spec().data.image.size;
  if (size.is_auto() || !signature.layout.is_image() || signature.gives == Target::pixels) return;
  auto& sizes = signature.layout.fields.front().sizes;
  sizes[0] = size.value->values.front();
  sizes[1] = size.value->values.back();
}

Source run_source(const Request& request, const app::RunFolder& run) {
  Source source{.folder = request.folder,
                .job = app::load_job_of_weights(
                    {.file = run.resolved().string(), .set = request.set, .output_dir = run.path.string()}),
                .shares_model = sets(request, "parallel"),
                .signature = {},
                .weights = {},
                .tokenizer = request.tokenizer};
  source.weights = app::weights_at(request.folder, source.job, run);
  RunSignature known = signature_of_run(source.job, source.weights);
  source.signature = std::move(known.signature);
  source.training_data = std::move(known.training_data);
  if (sets(request, "data.image.size")) take_image_size(source.job, source.signature);
  if (!source.reads_texts()) return source;
  const auto& text = source.job.spec().data.text;
  const fs::path own = tokenizer_of_run(source.job, run);
  if (source.tokenizer.empty()) source.tokenizer = own;
  source.chat_template = template_of_run(source.job, run, request, source.tokenizer);
  // Texts to continue may be longer than those that the run has learned from.
  if (!source.continues_texts() || sets(request, "data.text.max_length")) source.longest = text.max_length.value;
  // Formats text and tokens are learned without begin and end.
  const std::string& format = source.job.spec().data.train.format.name;
  source.adds_special_tokens = !own.empty() && format != "text" && format != "tokens";
  return source;
}

Source source_at(Request request) {
  request.folder = hub::pretrained_path(request.folder.string());
  if (!request.tokenizer.empty()) request.tokenizer = hub::pretrained_path(request.tokenizer.string());
  if (const app::RunFolder run = app::run_at(request.folder); exists(run.resolved())) return run_source(request, run);
  if (exists(request.folder / models::kAdapterConfig)) return adapter_source(request);
  if (exists(request.folder / "config.json")) return published_source(request, request.folder, {});
  throw Error(ExitCode::usage, {.what = "neither a run folder nor a model's: it has no job.resolved.yaml and no "
                                        "config.json",
                                .where = request.folder.string(),
                                .hint = hub::fetch_command_for(request.folder)});
}

}  // namespace

Source find(const Request& request) {
  try {
    return source_at(request);
  } catch (const Error& mistake) {
    app::fail_before_rendezvous(mistake);
  }
}

}  // namespace gputrain::trained
