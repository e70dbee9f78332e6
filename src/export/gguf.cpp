#include <regex>

#include <nlohmann/json.hpp>

#include "gguf_model.hpp"
#include "gguf_tokenizer.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/setup/weights.hpp"
#include "stored_type.hpp"

namespace gputrain::app {
namespace {

/// Returns llama.cpp's number for the type of most weights.
uint32_t file_type_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return 0;
    case StoredType::f16:
      return 1;
    case StoredType::q8_0:
      return 7;
    case StoredType::bf16:
      break;
  }
  return 32;
}

GgmlType ggml_type_of(const std::string& name, const at::Tensor& tensor, StoredType type) {
  const bool is_router = name.ends_with(".ffn_gate_inp.weight");  // readers expect fp32
  if (tensor.dim() < 2 || is_router || type == StoredType::f32) return GgmlType::f32;
  if (type == StoredType::bf16) return GgmlType::bf16;
  return type == StoredType::q8_0 && tensor.size(-1) % 32 == 0 ? GgmlType::q8_0 : GgmlType::f16;
}

std::string bytes_as(const std::string& name, const at::Tensor& tensor, GgmlType type) {
  switch (type) {
    case GgmlType::f32:
      return bytes_of(converted(name, tensor, StoredType::f32));
    case GgmlType::f16:
      return bytes_of(converted(name, tensor, StoredType::f16));
    case GgmlType::q8_0:
      return q8_0_bytes(name, tensor);
    case GgmlType::bf16:
      break;
  }
  return bytes_of(converted(name, tensor, StoredType::bf16));
}

/// Replaces `{% generation %}`, which readers of GGUF do not know, by a comment, which keeps the white space around it.
std::string without_marks(const std::string& source) {
  static const std::regex marks(R"(\{%(-?)\s*(end)?generation\s*(-?)%\})");
  return std::regex_replace(source, marks, "{#$1 $3#}");
}

}  // namespace

void export_gguf(trained::Model& model, const std::filesystem::path& file, StoredType type) {
  if (!model.published)
    throw Error(ExitCode::usage, {.what = "the model's tokenizer is not that of a published model",
                                  .where = "--format gguf",
                                  .hint = "GGUF keeps published tokenizers alone: data.text.tokenizer: published"});
  const nlohmann::json config = models::published_config(*model.built.model);
  if (config.is_null())
    throw Error(ExitCode::usage, {.what = "no published family has this architecture", .where = "--format gguf"});
  const GgufModel architecture(config);
  GgufFile gguf;
  gguf.values = {{"general.architecture", architecture.architecture()},
                 {"general.name", std::filesystem::absolute(file).stem().string()},
                 {"general.file_type", file_type_of(type)},
                 {"general.quantization_version", uint32_t{2}}};
  for (auto& value : architecture.values()) gguf.values.push_back(std::move(value));
  for (auto& value : gguf_tokenizer(model)) gguf.values.push_back(std::move(value));
  if (model.files.chat_template)
    gguf.values.emplace_back("tokenizer.chat_template", without_marks(model.files.chat_template->source().source()));
  for (const auto& [name, tensor] : architecture.tensors(published_weights(*model.built.model))) {
    const GgmlType stored = ggml_type_of(name, tensor, type);
    gguf.tensors.push_back(
        {.name = name, .sizes = tensor.sizes().vec(), .type = stored, .bytes = [name, tensor, stored] {
           return bytes_as(name, tensor, stored);
         }});
  }
  gguf.write(file);
}

}  // namespace gputrain::app
