// A job with only a model section, for tests that build a network from YAML.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/config/load.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

struct SmallJob {
  struct Model {
    config::Choice architecture;
    static void describe(config::Description<Model>& d) {
      d.choice("type", &Model::architecture, catalog(), "architecture", "config").required();
    }
  };
  Model model;
  static void describe(config::Description<SmallJob>& d) { d.key("model", &SmallJob::model, "what learns"); }
};

inline config::Loaded load_job(const std::string& text, std::vector<std::string> set = {}) {
  return config::load(config::schema_of<SmallJob>(),
                      {.file = "job.yaml", .text = text, .set = std::move(set), .environment = {}});
}

inline std::unique_ptr<Model> build(const config::Loaded& job, const DataFacts& facts,
                                    const nn::Context& context = {}) {
  return catalog().make(job.as<SmallJob>().model.architecture, context, facts);
}

}  // namespace gputrain::models
