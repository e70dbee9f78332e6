#include "gputrain/job/job.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/job/foreign.hpp"
#include "gputrain/job/plugins.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/models/pretrained.hpp"
#include "gputrain/models/sentence_modules.hpp"

namespace gputrain::app {
namespace {

std::string six_hex_digits(uint64_t value) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%06x", static_cast<unsigned>(value & 0xFFFFFF));
  return text.data();
}

/// Returns settings from the modules of a sentence-transformers folder, if the job does not set them.
std::vector<std::string> sentence_settings(const std::filesystem::path& folder, const models::PublishedModel& published,
                                           const config::Loaded& job) {
  if (published.type != "bert") return {};
  auto modules = models::read_sentence_modules(folder);
  if (!modules) return {};
  for (const auto& [name, value] : published.options)
    if (name == "block_size" && modules->longest_text)
      modules->longest_text = std::min<int64_t>(*modules->longest_text, std::stoll(value));
  return models::settings_of(*modules, job, "model");
}

/// Returns settings from the model_args of a timm folder, if the job does not set them. The job says the type: "vit".
std::vector<std::string> timm_settings(const nlohmann::json& config, const std::string& where,
                                       const config::Loaded& job) {
  models::PublishedModel published = models::timm_model(config, where);
  const std::string& type = job.as<JobSpec>().model.architecture.name;
  if (published.type.empty() || !type.starts_with(published.type.substr(0, published.type.find('_')))) return {};
  published.type = type;
  return models::settings_of(published, job, "model");
}

/// Loads the job with the sizes in the config.json of a Hugging Face folder, which the job must not contradict. They
/// are applied last, so that a `null` in the job that removes its own sizes does not remove them too.
config::Loaded load_with_published_sizes(config::Request request) {
  config::Loaded loaded = config::load(job_schema(), request);
  const auto& pretrained = loaded.as<JobSpec>().model.pretrained;
  if (!pretrained) return loaded;
  const auto path = hub::pretrained_path_or_name(*pretrained) / "config.json";
  if (!std::filesystem::exists(path)) return loaded;
  const auto config = checkpoint::read_json_object(path);
  if (models::is_timm_config(config)) {
    request.found = {.file = path, .set = timm_settings(config, path.string(), loaded)};
    return config::load(job_schema(), request);
  }
  const auto published = models::published_model(config, path.string());
  const bool says_no = !loaded.as<JobSpec>().model.quantize && loaded.origin("model.quantize") != "default";
  if (says_no && !published.quantized.empty())
    log::warning("model.quantize: null is not used: the weights in " + path.parent_path().string() +
                 " are quantised, and there are no others");
  request.found = {.file = path, .set = models::settings_of(published, loaded, "model")};
  for (std::string& line : sentence_settings(path.parent_path(), published, loaded))
    request.found.set.push_back(std::move(line));
  return config::load(job_schema(), request);
}

/// Makes the paths of plug-ins absolute, because a run folder is read from anywhere.
config::Loaded with_whole_paths_of_plugins(const config::Loaded& job) {
  if (job.as<JobSpec>().plugins.empty()) return job;
  JobSpec spec = job.as<JobSpec>();
  for (std::string& file : spec.plugins) file = std::filesystem::absolute(file).lexically_normal();
  return job.with(std::move(spec));
}

}  // namespace

const config::Schema& job_schema() { return config::schema_of<JobSpec>(); }

Job load_job(const JobRequest& request) {
  refuse_foreign_job(request.file);
  config::Request reading = reading_of(request);
  reading.of_plugins = load_plugins_of(reading);
  Job job{.loaded = with_whole_paths_of_plugins(load_with_published_sizes(reading)),
          .name = {},
          .run_id = {},
          .spec_hash = {},
          .output_dir = {}};
  if (const auto& left_out = job.loaded.left_out(); !left_out.empty())
    log::warning(fmt::format("{}: another version of gputrain wrote it, and {} {} no effect here", request.file,
                             fmt::join(left_out, ", "), left_out.size() == 1 ? "has" : "have"));
  const JobSpec& spec = job.spec();
  job.name = name_of(spec, request);
  job.spec_hash = six_hex_digits(stable_hash(config::identity(job.loaded.settings())));
  job.run_id = job.name + "-" + job.spec_hash;
  job.output_dir = output_dir_of(spec, request);
  return job;
}

Job load_job_of_weights(JobRequest request) {
  // `optimizer.master: bf16` needs precision: bf16, but only for training.
  const bool has_other = std::ranges::any_of(
      request.set, [](const std::string& one) { return one.starts_with("precision=") && one != "precision=bf16"; });
  if (has_other) request.set.emplace_back("optimizer.master=fp32");
  return load_job(request);
}

}  // namespace gputrain::app
