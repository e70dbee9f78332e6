#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/models/sentence_modules.hpp"
#include "gputrain/setup/weights.hpp"
#include "onnx/trace.hpp"
#include "onnx/translation.hpp"

namespace gputrain::app {
namespace {

using Metadata = std::map<std::string, std::string>;

/// What is written, and how the model is called.
struct Exported {
  BuiltModel& built;
  std::vector<std::string> inputs;  // names
  std::string output;
  onnx::TracedModel traced;
  Metadata metadata;
};

at::Tensor logits_of(models::Model& model, const Batch& batch) {
  const models::Model::LastLayer last = model.last_layer(batch);
  const at::Tensor logits = last.head.logits ? last.head.logits(last.features) : last.features;
  return logits.size(-1) == last.classes ? logits : logits.narrow(-1, 0, last.classes);
}

void write_onnx(const Exported& exported, const std::filesystem::path& file, int64_t most_bytes) {
  models::Model& model = *exported.built.model;
  model.train(false);
  onnx::Graph graph(named_weights(model));
  onnx::translate(onnx::trace_of(exported.traced), exported.inputs, exported.output, graph);
  graph.write(file, {.metadata = exported.metadata, .most_bytes = most_bytes});
}

/// Names of classes that are more than numbers.
void add_class_names(Metadata& metadata, const std::vector<std::string>& names) {
  if (!names.empty())
    metadata["class_names"] = nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Exported exported_texts(BuiltModel& built, int64_t longest, const std::string& output) {
  models::Model& model = *built.model;
  Exported exported{
      .built = built, .inputs = {kTokens, "lengths", kTokenTypes}, .output = output, .traced = {}, .metadata = {}};
  exported.traced.extents = onnx::extents_to_record(longest);
  exported.traced.inputs = [](const onnx::Extent& extent) {
    const std::vector<int64_t> sizes{extent.samples, extent.length};
    return std::vector{at::zeros(sizes, at::kLong), at::full({extent.samples}, extent.length, at::kLong),
                       at::zeros(sizes, at::kLong)};
  };
  exported.traced.pass = [&model](const std::vector<at::Tensor>& inputs) {
    Batch batch;
    batch.fields = {{kTokens, inputs[0], inputs[1]}, {kTokenTypes, inputs[2], inputs[1]}};
    batch.samples = batch.samples_on_all_ranks = inputs[0].size(0);
    return logits_of(model, batch);
  };
  return exported;
}

}  // namespace

void export_onnx(TextEncoder& encoder, const std::filesystem::path& file, int64_t most_bytes) {
  const bool gives_vectors = models::sentence_modules_of(*encoder.built.model).has_value();
  Exported exported = exported_texts(encoder.built, encoder.longest_text, gives_vectors ? "vectors" : "logits");
  if (!gives_vectors) add_class_names(exported.metadata, encoder.class_names);
  write_onnx(exported, file, most_bytes);
}

void export_onnx(LanguageModel& model, const std::filesystem::path& file, int64_t most_bytes) {
  write_onnx(exported_texts(model.built, model.limits.length, "logits"), file, most_bytes);
}

void export_onnx(TrainedModel& model, const std::filesystem::path& file, int64_t most_bytes) {
  const JobDatasets& datasets = model.datasets;
  const std::string name = datasets.train->layout().input().name;
  Exported exported{.built = model.built, .inputs = {name}, .output = "logits", .traced = {}, .metadata = {}};
  exported.traced.extents = onnx::extents_to_record(0);
  exported.traced.inputs = [&](const onnx::Extent& extent) {
    std::vector<int64_t> sizes{extent.samples};
    sizes.insert(sizes.end(), datasets.facts.input_shape.begin(), datasets.facts.input_shape.end());
    return std::vector{at::rand(sizes)};
  };
  exported.traced.pass = [&](const std::vector<at::Tensor>& inputs) {
    Batch batch;
    batch.fields = {{name, inputs[0]}};
    batch.samples = batch.samples_on_all_ranks = inputs[0].size(0);
    return logits_of(*model.built.model, batch);
  };
  add_class_names(exported.metadata, datasets.facts.class_names);
  if (const auto normalization = datasets.train->normalization()) {
    exported.metadata["image_mean"] = nlohmann::json(normalization->mean).dump();
    exported.metadata["image_std"] = nlohmann::json(normalization->std).dump();
  }
  write_onnx(exported, file, most_bytes);
}

}  // namespace gputrain::app
