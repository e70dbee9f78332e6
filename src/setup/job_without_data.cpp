#include "job_without_data.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::app {

std::string quoted(const std::string& text) {
  std::string yaml = "'";
  for (const char c : text) yaml += c == '\'' ? "''" : std::string(1, c);
  return yaml + "'";
}

std::string setting_of(const Job& job, const std::string& key) {
  for (const config::Setting& setting : job.loaded.settings()) {
    if (setting.key == key) return setting.value;
  }
  return {};
}

Job job_without_data(std::vector<std::string> model, const std::vector<std::string>& set) {
  model.push_back("data.train.format=synthetic");
  model.insert(model.end(), set.begin(), set.end());
  return load_job({.file = {}, .set = std::move(model), .output_dir = {}});
}

Job job_of_published(const std::filesystem::path& folder, std::vector<std::string> model,
                     const std::vector<std::string>& set) {
  const std::filesystem::path config = folder / "config.json";
  model.push_back("model.type=" + models::published_model(checkpoint::read_json_object(config), config.string()).type);
  model.push_back("model.pretrained=" + quoted(folder.string()));
  return job_without_data(std::move(model), set);
}

Job job_without_data(const Job& run, const std::vector<std::string>& set) {
  const auto is_kept = [&](const std::string& key) {
    if (key == "model.pretrained") return run.spec().model.adapter.has_value();  // the adapter's base
    return key.starts_with("model.") || key == "data.text.chat_template" || key == "data.text.max_length" ||
           key.starts_with("data.text.tokenizer") || key == "precision" || key == "device" ||
           key == "train.cuda_graphs" || key == "seed";
  };
  std::vector<std::string> kept;
  for (const config::Setting& setting : run.loaded.settings())
    if (is_kept(setting.key)) kept.push_back(setting.key + "=" + setting.value);
  return job_without_data(std::move(kept), set);
}

std::filesystem::path tokenizer_of_run(const Job& job, const RunFolder& run) {
  const std::string& kind = job.spec().data.text.tokenizer.name;
  if (kind != "published" && kind != "pretrained") return {};
  if (tokenizers::is_published(run.path)) return run.path;
  if (kind == "pretrained") return job.spec().model.pretrained_path();
  return hub::pretrained_path(setting_of(job, "data.text.tokenizer_path"));
}

}  // namespace gputrain::app
