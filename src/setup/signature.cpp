#include "gputrain/setup/signature.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kImageInput = "image_input";

/// Returns the names of classes, which weights of images store beside those facts.
std::vector<std::string> names_in(const checkpoint::Metadata& metadata, int64_t classes) {
  const auto names = metadata.find(tokenizers::kTargets);
  const json told = names == metadata.end() ? json() : parse_json(names->second);
  const bool has_all = told.is_array() && std::ssize(told) == classes &&
                       std::ranges::all_of(told, [](const json& name) { return name.is_string(); });
  return has_all ? told.get<std::vector<std::string>>() : std::vector<std::string>();
}

}  // namespace

InputSpec model_of(const Job& job) {
  InputSpec model = models::catalog().reads(job.spec().model.architecture);
  if (!model.reads_tokens() && model.target != Target::pixels) model.target = Target::label;
  return tasks::catalog().reads(job.spec().task.type, model);
}

Target given_by(const Job& job) {
  const InputSpec model = models::catalog().reads(job.spec().model.architecture);
  if (model.reads_tokens() && (model.target == Target::next_token || model.target == Target::pairs))
    return model.target;
  const Target learned = model_of(job).target;
  return learned == Target::preference ? Target::rating : learned;
}

data::Signature signature_of(const Job& job, const JobDatasets& datasets) {
  const InputSpec model = model_of(job);
  data::Signature known = data::Signature::of(*datasets.train, model);
  known.gives = given_by(job);
  // Longest text as models compute it: their number of places does not depend on the samples at hand.
  const auto& facts = datasets.facts;
  if (model.reads_tokens())
    known.longest = model.longest > 0 ? model.longest : std::max(facts.input_shape[0], facts.longest_text);
  return known;
}

JobDatasets datasets_without_samples(const Job& job, const data::Signature& signature) {
  JobDatasets datasets;
  datasets.train = signature.without_samples();
  datasets.facts = facts_of(job, *datasets.train);
  if (signature.longest == 0) return datasets;
  const int64_t asked = models::catalog().reads(job.spec().model.architecture).longest;
  datasets.facts.input_shape = {asked > 0 ? asked : signature.longest};
  datasets.facts.longest_text = 0;  // the model has the places that it was trained with
  return datasets;
}

void note_images(const data::Dataset& learned, checkpoint::Metadata& metadata) {
  const data::SampleLayout& layout = learned.layout();
  const auto normalization = learned.normalization();
  if (!layout.is_image() || layout.outputs == 0 || !normalization) return;
  const auto& sizes = layout.input().sizes;
  metadata[kImageInput] = json{{"height", sizes[0]},        {"width", sizes[1]},           {"channels", sizes[2]},
                               {"classes", layout.outputs}, {"mean", normalization->mean}, {"std", normalization->std}}
                              .dump();
}

std::optional<data::Signature> images_in(const checkpoint::Metadata& metadata) {
  const auto found = metadata.find(kImageInput);
  if (found == metadata.end()) return std::nullopt;
  try {
    const json told = parse_json(found->second);
    const int64_t height = told.at("height"), width = told.at("width"), channels = told.at("channels"),
                  classes = told.at("classes");
    if (std::min({height, width, channels, classes}) < 1) return std::nullopt;
    return data::Signature{.layout = data::SampleLayout::images(height, width, channels, classes),
                           .class_names = names_in(metadata, classes),
                           .normalization = data::Normalization{.mean = told.at("mean"), .std = told.at("std")}};
  } catch (const json::exception&) {  // written by another program
    return std::nullopt;
  }
}

}  // namespace gputrain::app
