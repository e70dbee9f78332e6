#include "job.hpp"

#include <array>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "gputrain/core/random.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::app {
namespace {

std::string six_hex_digits(uint64_t value) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%06x", static_cast<unsigned>(value & 0xFFFFFF));
  return text.data();
}

/// The job file's name without its ending, fit for a folder name.
std::string name_from(const std::filesystem::path& file) {
  std::string name = file.stem().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  }
  return name.empty() ? "job" : name;
}

/// A Hugging Face folder gives the model's sizes: its config.json is read as settings that come before the job's own.
config::Loaded load_with_published_sizes(config::Request request) {
  config::Loaded loaded = config::load(job_schema(), request);
  const auto& pretrained = loaded.as<JobSpec>().model.pretrained;
  if (!pretrained) return loaded;
  const auto path = std::filesystem::path(*pretrained) / "config.json";
  if (!std::filesystem::exists(path)) return loaded;
  std::ifstream file(path);
  const auto config = nlohmann::json::parse(file, nullptr, false);
  const auto published = models::published_model(config, path.string());
  auto set = models::settings_of(published, loaded, "model");
  set.insert(set.end(), request.set.begin(), request.set.end());
  request.set = std::move(set);
  return config::load(job_schema(), request);
}

}  // namespace

const config::Schema& job_schema() { return config::schema_of<JobSpec>(); }

Job load_job(const JobRequest& request) {
  config::Request reading{.file = request.file, .set = request.set};
  if (request.output_dir) {
    // Quoted as YAML: a folder may be called "null" or "1".
    std::string quoted = "'";
    for (const char c : *request.output_dir) quoted += c == '\'' ? "''" : std::string(1, c);
    reading.set.push_back("output_dir=" + quoted + "'");
  }
  Job job{.loaded = load_with_published_sizes(reading), .name = {}, .run_id = {}, .spec_hash = {}, .output_dir = {}};
  const JobSpec& spec = job.spec();
  job.name = spec.name.value_or(name_from(request.file));
  job.spec_hash = six_hex_digits(stable_hash(config::identity(job.loaded.settings())));
  job.run_id = job.name + "-" + job.spec_hash;
  job.output_dir = spec.output_dir ? std::filesystem::path(*spec.output_dir) : std::filesystem::path("runs") / job.name;
  return job;
}

}  // namespace gputrain::app
