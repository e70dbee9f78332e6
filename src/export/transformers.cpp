#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "encoder_tokenizer.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/weights.hpp"
#include "stored_type.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const checkpoint::Metadata kMetadata{{"format", "pt"}};  // transformers asks for it

const char* dtype_of(StoredType type) {
  return type == StoredType::f32 ? "float32" : type == StoredType::f16 ? "float16" : "bfloat16";
}

int64_t bytes_of(const checkpoint::NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Splits tensors into files of neighbours of at most `most` bytes; a larger tensor has a file of its own.
std::vector<checkpoint::NamedTensors> in_files(const checkpoint::NamedTensors& tensors, int64_t most) {
  std::vector<checkpoint::NamedTensors> files(1);
  for (const auto& named : tensors) {
    const bool is_full = bytes_of(files.back()) + static_cast<int64_t>(named.second.nbytes()) > most;
    if (is_full && !files.back().empty()) files.emplace_back();
    files.back().push_back(named);
  }
  return files;
}

void write_weights_in_files(const checkpoint::NamedTensors& tensors, const fs::path& folder, int64_t most) {
  const auto files = in_files(tensors, most);
  if (files.size() == 1) {
    checkpoint::write_safetensors(folder / "model.safetensors", tensors, kMetadata);
    return;
  }
  json index{{"metadata", {{"total_size", bytes_of(tensors)}}}, {"weight_map", json::object()}};
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    checkpoint::write_safetensors(folder / name, files[i], kMetadata);
    for (const auto& named : files[i]) index["weight_map"][named.first] = name;
  }
  write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n", ExitCode::environment);
}

/// Returns the config.json that belongs to the weights.
json write_published_weights(models::Model& model, const fs::path& folder, StoredType type, int64_t file_bytes) {
  json config = models::published_config(model);
  if (config.is_null())
    throw Error(ExitCode::usage,
                {.what = "no folder of transformers is written for this architecture",
                 .where = "--format",
                 .hint = "onnx; for images, model.safetensors of the run, or timm and torchvision, which "
                         "name a ViT's or ConvNeXt's weights as these do"});
  if (type == StoredType::q8_0)
    throw Error(ExitCode::usage, {.what = "q8_0 is a type of GGUF", .where = "--dtype", .hint = "f32, f16 or bf16"});
  checkpoint::NamedTensors tensors = published_weights(model);
  for (auto& [name, tensor] : tensors) tensor = converted(name, tensor, type);
  json quantization = models::add_packed_tensors(model, tensors);
  fs::create_directories(folder);
  write_weights_in_files(tensors, folder, file_bytes);
  config["dtype"] = config["torch_dtype"] = dtype_of(type);
  if (quantization.is_null()) return config;
  if (quantization.contains("bnb_4bit_compute_dtype")) quantization["bnb_4bit_compute_dtype"] = dtype_of(type);
  config["quantization_config"] = std::move(quantization);
  return config;
}

/// Returns the kind of loss in transformers; null: the head determines it.
const char* problem_type_of(const trained::Model& model) {
  const InputSpec read = models::catalog().reads(model.job.spec().model.architecture);
  const Target& gives = model.signature.gives;
  if (gives == Target::rating || (read.reads_tokens() && read.target != Target::label)) return nullptr;
  if (gives == Target::labels) return "multi_label_classification";
  return gives == Target::label ? "single_label_classification" : "regression";
}

}  // namespace

void export_transformers(trained::Model& model, const fs::path& folder, StoredType type, int64_t file_bytes) {
  json config = write_published_weights(*model.built.model, folder, type, file_bytes);
  if (const char* const problem = problem_type_of(model)) config["problem_type"] = problem;
  if (model.signature.gives == Target::next_token)
    write_text_files(model.files, folder);
  else if (model.signature.reads_texts())
    write_encoder_tokenizer(model, folder);
  add_special_tokens(config, folder);
  write_file_atomically(folder / "config.json", config.dump(2) + "\n", ExitCode::environment);
}

}  // namespace gputrain::app
