#include "support/small_job.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

namespace gputrain::testing_support {

std::string write_text(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "the " + std::to_string(i % 10) + " cats sat on the mat " + std::to_string(i % 7) + " times;\n";
  }
  return folder.write("text.txt", text);
}

std::string write_gpt_job(const TemporaryFolder& folder, const std::string& extra, const std::string& train) {
  return folder.write("job.yaml",
                      "schema: 1\n"
                      "precision: fp64\n"
                      "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16}}\n"
                      "data:\n"
                      "  train: {path: " +
                          write_text(folder) +
                          ", format: text}\n"
                          "  val: {split: 10%}\n"
                          "train: " +
                          train +
                          "\n"
                          "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}\n" +
                          extra);
}

std::vector<double> values(const std::string& metrics, const std::string& name) {
  std::istringstream lines(read_file(metrics));
  std::vector<double> values;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["kind"] == "train") values.push_back(object.at(name));
  }
  return values;
}

std::vector<double> losses_of(const std::string& run) { return values(run + "/metrics.jsonl", "train/loss"); }

std::string timeless_metrics(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    nlohmann::json kept = object;
    for (const auto& [key, value] : object.items())
      if (key.starts_with("time") || key.ends_with("_per_second")) kept.erase(key);
    if (object["kind"] != "event") text += kept.dump() + "\n";
  }
  return text;
}

}  // namespace gputrain::testing_support
