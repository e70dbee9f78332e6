// `gputrain export`: writes a trained model for other programs.
#include <filesystem>

#include "gputrain/core/error.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/trained_weights.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// The type that the run computed in, where the user does not say.
StoredType type_of(const ExportRequest& request, const RankContext& context) {
  if (!request.dtype.empty()) return stored_type_from_name(request.dtype);
  const auto compute = context.policy.compute;
  return compute == at::kBFloat16 ? StoredType::bf16 : compute == at::kHalf ? StoredType::f16 : StoredType::f32;
}

void merge_as_asked(const ExportRequest& request, BuiltModel& built) {
  if (!built.adapter) return;
  if (request.format != "gguf" && !request.merge)
    throw Error(ExitCode::usage, {.what = "the run trained an adapter",
                                  .where = request.folder,
                                  .hint = "--merge writes the whole model, --format adapter the adapter alone"});
  models::merge_adapter(*built.model);
}

void export_encoder(const ExportRequest& request) {
  const bool has_modules = request.format == "sentence-transformers";
  if (request.format == "gguf")
    throw Error(ExitCode::usage,
                {.what = "GGUF is written of language models alone", .where = request.folder, .hint = "--format hf"});
  const auto encoder = open_text_encoder(
      {.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer, .gives_vectors = has_modules});
  merge_as_asked(request, encoder->built);
  const StoredType type = type_of(request, encoder->context);
  has_modules ? export_sentence_transformers(*encoder, request.out, type)
              : export_transformers(*encoder, request.out, type);
}

void export_language_model(const ExportRequest& request) {
  if (request.format == "sentence-transformers")
    throw Error(ExitCode::usage,
                {.what = "the model is no encoder of texts", .where = request.folder, .hint = "--format hf"});
  const auto model =
      open_language_model({.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer});
  merge_as_asked(request, model->built);
  const StoredType type = type_of(request, model->context);
  request.format == "hf" ? export_transformers(*model, request.out, type) : export_gguf(*model, request.out, type);
}

/// Calls `write` with the run's model, in whatever way it is opened.
template <class Write>
void with_model(const ExportRequest& request, const std::vector<std::string>& set, const Write& write) {
  switch (kind_of(request.folder)) {
    case ModelKind::text_encoder:
      return write(*open_text_encoder(
          {.folder = request.folder, .set = set, .tokenizer = request.tokenizer, .needs_tokenizer = false}));
    case ModelKind::language_model:
      return write(*open_language_model(
          {.folder = request.folder, .set = set, .tokenizer = request.tokenizer, .needs_tokenizer = false}));
    case ModelKind::other:
      return write(*open_trained_model(request.folder, set));
  }
}

/// Copies the adapter that a run has written, or writes that of a checkpoint.
void export_adapter(const ExportRequest& request) {
  if (const fs::path from = adapter_folder_at(request.folder); !from.empty()) {
    fs::create_directories(request.out);
    fs::copy(from, request.out, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    return;
  }
  const RunFolder run = run_at(request.folder);
  const auto refuse = [&] {
    throw Error(ExitCode::usage, {.what = "there is no adapter", .where = request.folder, .hint = "--format hf"});
  };
  if (!fs::exists(request.folder)) throw Error(ExitCode::usage, {.what = "no such folder", .where = request.folder});
  if (!fs::exists(run.resolved())) refuse();
  const Job job =
      load_job_of_weights({.file = run.resolved().string(), .set = request.set, .output_dir = run.path.string()});
  if (!job.spec().model.adapter) refuse();
  with_model(request, request.set, [&](auto& model) {
    write_adapter(*model.built.model,
                  {.adapter = *model.built.adapter,
                   .weights = trained_weights(*model.built.model),
                   .base = *job.spec().model.pretrained,
                   .learned = *model.datasets.train},
                  request.out);
    if constexpr (requires { model.files; }) write_text_files(model.files, request.out);
  });
}

void export_as_onnx(const ExportRequest& request) {
  if (!request.dtype.empty() && request.dtype != "f32")
    throw Error(ExitCode::usage,
                {.what = "ONNX files are written in fp32", .where = "--dtype", .hint = "leave it out, or f32"});
  std::vector<std::string> set = request.set;
  set.insert(set.end(), {"precision=fp32", "device=cpu"});
  with_model(request, set, [&](auto& model) {
    if (model.built.adapter) models::merge_adapter(*model.built.model);
    export_onnx(model, request.out);
  });
}

uint64_t size_of(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

/// Removes what a failed export has written, where there was nothing before.
class Written {
 public:
  explicit Written(fs::path out) : out_(std::move(out)), is_new_(!fs::exists(out_)) {}
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  ~Written() {
    std::error_code ignored;
    if (is_new_ && !is_whole_) fs::remove_all(out_, ignored);
  }
  void is_whole() { is_whole_ = true; }

 private:
  fs::path out_;
  bool is_new_, is_whole_ = false;
};

}  // namespace

int export_command(const ExportRequest& request) {
  Written written(request.out);
  if (request.format == "adapter") {
    export_adapter(request);
  } else if (request.format == "onnx") {
    export_as_onnx(request);
  } else {
    const ModelKind kind = kind_of(request.folder);
    if (kind == ModelKind::other)
      throw Error(ExitCode::usage, {.what = request.format + " is a format of models of texts, and this one reads none",
                                    .where = request.folder,
                                    .hint = "--format onnx; the run's model.safetensors is for torchvision and timm"});
    kind == ModelKind::text_encoder ? export_encoder(request) : export_language_model(request);
  }
  written.is_whole();
  monitor::Console console(monitor::Console::detect(true));
  console.show("export", request.out + "  " + monitor::bytes(static_cast<double>(size_of(request.out))));
  return 0;
}

}  // namespace gputrain::app
