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

/// Model to write, and the way to call it.
struct Exported {
  BuiltModel& built;
  std::vector<std::string> inputs;  // names
  std::string output;
  onnx::TracedModel traced;
  Metadata metadata;
};

void write_onnx(const Exported& exported, const std::filesystem::path& file, int64_t most_bytes) {
  models::Model& model = *exported.built.model;
  model.train(false);
  onnx::Graph graph(named_weights(model));
  onnx::translate(onnx::trace_of(exported.traced), exported.inputs, exported.output, graph);
  graph.write(file, {.metadata = exported.metadata, .most_bytes = most_bytes});
}

/// Adds the names of classes, unless they are only numbers.
void add_class_names(Metadata& metadata, const std::vector<std::string>& names) {
  if (!names.empty())
    metadata["class_names"] = nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Exported exported_texts(trained::Model& opened) {
  models::Model& model = *opened.built.model;
  const bool gives_vectors = models::sentence_modules_of(model).has_value();
  Exported exported{.built = opened.built,
                    .inputs = {kTokens, "lengths", kTokenTypes},
                    .output = gives_vectors ? "vectors" : "logits",
                    .traced = {},
                    .metadata = {}};
  exported.traced.extents = onnx::extents_to_record(opened.longest_text);
  exported.traced.inputs = [](const onnx::Extent& extent) {
    const std::vector<int64_t> sizes{extent.samples, extent.length};
    return std::vector{at::zeros(sizes, at::kLong), at::full({extent.samples}, extent.length, at::kLong),
                       at::zeros(sizes, at::kLong)};
  };
  exported.traced.pass = [&model](const std::vector<at::Tensor>& inputs) {
    Batch batch;
    batch.fields = {{kTokens, inputs[0], inputs[1]}, {kTokenTypes, inputs[2], inputs[1]}};
    batch.samples = batch.samples_on_all_ranks = inputs[0].size(0);
    return trained::outputs_of(model, batch);
  };
  if (!gives_vectors && opened.signature.gives != Target::next_token)
    add_class_names(exported.metadata, opened.class_names);
  return exported;
}

Exported exported_samples(trained::Model& opened) {
  models::Model& model = *opened.built.model;
  const std::string name = opened.signature.layout.input().name;
  Exported exported{.built = opened.built, .inputs = {name}, .output = "logits", .traced = {}, .metadata = {}};
  exported.traced.extents = onnx::extents_to_record(0);
  exported.traced.inputs = [shape = opened.datasets.facts.input_shape](const onnx::Extent& extent) {
    std::vector<int64_t> sizes{extent.samples};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return std::vector{at::rand(sizes)};
  };
  exported.traced.pass = [&model, name](const std::vector<at::Tensor>& inputs) {
    Batch batch;
    batch.fields = {{name, inputs[0]}};
    batch.samples = batch.samples_on_all_ranks = inputs[0].size(0);
    return trained::outputs_of(model, batch);
  };
  add_class_names(exported.metadata, opened.signature.class_names);
  if (const auto& normalization = opened.signature.normalization) {
    exported.metadata["image_mean"] = nlohmann::json(normalization->mean).dump();
    exported.metadata["image_std"] = nlohmann::json(normalization->std).dump();
  }
  return exported;
}

}  // namespace

void export_onnx(trained::Model& model, const std::filesystem::path& file, int64_t most_bytes) {
  write_onnx(model.signature.reads_texts() ? exported_texts(model) : exported_samples(model), file, most_bytes);
}

}  // namespace gputrain::app
