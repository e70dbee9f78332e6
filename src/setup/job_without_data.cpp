#include "job_without_data.hpp"

#include <utility>

#include "gputrain/hub/cache.hpp"
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

Job job_without_data(std::vector<std::string> model, int64_t vocabulary, const std::vector<std::string>& set) {
  model.push_back("data.train.format=synthetic");
  model.push_back("data.train.vocab_size=" + std::to_string(vocabulary));
  model.insert(model.end(), set.begin(), set.end());
  return load_job({.file = {}, .set = std::move(model), .output_dir = {}});
}

std::filesystem::path tokenizer_of_run(const Job& job, const RunFolder& run) {
  const std::string& kind = job.spec().data.text.tokenizer.name;
  if (kind != "published" && kind != "pretrained") return {};
  if (tokenizers::is_published(run.path)) return run.path;
  if (kind == "pretrained") return job.spec().model.pretrained_path();
  return hub::pretrained_path(setting_of(job, "data.text.tokenizer_path"));
}

}  // namespace gputrain::app
