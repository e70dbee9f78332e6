// Command `gputrain export`: writes a trained model for other programs.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include <fmt/format.h>

#include "../commands.hpp"
#include "export_scheduler_file.hpp"
#include "gputrain/checkpoint/weight_files.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Returns the type that the user wants, or the one that the run computed in.
StoredType type_of(const ExportRequest& request, const RankContext& context) {
  if (!request.dtype.empty()) return stored_type_from_name(request.dtype);
  const auto compute = context.policy.compute;
  return compute == at::kBFloat16 ? StoredType::bf16 : compute == at::kHalf ? StoredType::f16 : StoredType::f32;
}

/// Throws Error(usage) for an adapter that nobody says what to do with.
void check_merge(const ExportRequest& request, const BuiltModel& built) {
  if (built.adapter && request.format != "gguf" && !request.merge)
    throw Error(ExitCode::usage, {.what = "the run trained an adapter",
                                  .where = request.folder,
                                  .hint = "--merge writes the whole model, --format adapter the adapter alone"});
}

/// Throws Error(usage) if the export would overwrite what it reads.
void refuse_to_overwrite(const fs::path& read, const fs::path& out) {
  std::error_code ignored;
  if (!fs::equivalent(read, out, ignored)) return;
  throw Error(ExitCode::usage, {.what = "the export would overwrite the model that it reads",
                                .where = out.string(),
                                .hint = "the name of a new folder or file"});
}

trained::Source find_with(const ExportRequest& request, std::vector<std::string> set) {
  set.insert(set.begin(), request.set.begin(), request.set.end());
  return trained::find({.folder = request.folder,
                        .set = std::move(set),
                        .tokenizer = request.tokenizer,
                        .gives_vectors = request.format == "sentence-transformers"});
}

/// Returns whether the weights that the job starts with are quantised in their folder.
bool starts_quantised(const trained::Source& source) {
  const fs::path config = source.job.spec().model.pretrained_path() / "config.json";
  return fs::exists(config) && checkpoint::read_json_object(config).contains("quantization_config");
}

/// A model to export, and how its base was quantised while an adapter was trained beside it.
struct Found {
  trained::Source source;
  std::optional<QuantizeSpec> quantized;  // empty: it was not, or only its quantised weights are at hand
};

/// Throws Error(usage) for settings of quantised weights that this export cannot follow.
void check_quantized(const ExportRequest& request, const ModelSpec& model) {
  const bool is_asked = std::ranges::any_of(
      request.set, [](const std::string& setting) { return setting.starts_with("model.quantize"); });
  if (is_asked && (model.adapter || request.format != "hf"))
    throw Error(ExitCode::usage, {.what = "quantised weights are written of a model without an adapter, as a folder",
                                  .where = "--set model.quantize",
                                  .hint = "export the model first, --format hf --merge, and then its folder"});
  if (request.has_base && request.base == "quantised" && !model.quantize)
    throw Error(ExitCode::usage,
                {.what = "the model's base is not quantised", .where = "--base", .hint = "leave it out"});
}

Found find_model(const ExportRequest& request, std::vector<std::string> set = {}) {
  Found found{.source = find_with(request, set), .quantized = {}};
  const ModelSpec& model = found.source.job.spec().model;
  check_quantized(request, model);
  if (model.adapter && model.quantize && !starts_quantised(found.source)) {
    found.quantized = model.quantize;
    set.emplace_back("model.quantize=null");
    found.source = find_with(request, std::move(set));
  } else if (request.base == "original" && request.has_base) {
    throw Error(ExitCode::usage, {.what = "only quantised weights are at hand",
                                  .where = "--base",
                                  .hint = "leave it out, or train beside the folder that they were made from"});
  }
  refuse_to_overwrite(found.source.job.spec().model.pretrained.value_or(""), request.out);
  return found;
}

/// Merges the adapter, if there is one, and tells what quantising its base changed.
void merge(const ExportRequest& request, const std::optional<QuantizeSpec>& quantized, BuiltModel& built,
           monitor::Console& console) {
  models::unpack_layers(*built.model);
  if (!built.adapter) return;
  if (quantized) {
    const auto& [weights, rounding, adapter] = models::round_layers(
        *built.model, {.type = quantized->type, .match = quantized->match, .key = "model.quantize"},
        weight_source(built.pretrained, *built.model), request.base == "quantised");
    console.show("merge",
                 fmt::format("into the {} weights: {} moves them by {:.2g} %, the adapter by {:.2g} %", request.base,
                             quantized->type.name, 100 * rounding / weights, 100 * adapter / weights));
  }
  models::merge_adapter(*built.model);
}

/// Lists the formats that a model can be written in.
std::string formats_of(const trained::Source& source) {
  std::string formats = "--format onnx";
  if (source.reads_texts()) formats += ", hf";
  if (source.continues_texts()) formats += ", gguf";
  if (source.signature.gives == Target::pairs) formats += ", sentence-transformers";
  if (source.signature.layout.is_image()) formats += "; of a ViT or ConvNeXt also timm and torchvision";
  if (source.job.spec().model.adapter) formats += "; adapter";
  return formats;
}

/// Throws Error(usage) for a model that the format does not support.
void check_format(const ExportRequest& request, const trained::Source& source) {
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw Error(ExitCode::usage, {.what = what, .where = request.folder, .hint = hint});
  };
  if (!source.reads_texts() && request.format != "hf")
    refuse(request.format + " is a format of models of texts, and this one reads none", "--format onnx");
  const std::string given = "this model " + trained::what_it_gives(source.signature);
  if (request.format == "gguf" && !source.continues_texts())
    refuse("GGUF is written of language models alone, and " + given, "--format hf");
  if (request.format == "sentence-transformers" && source.signature.gives != Target::pairs)
    refuse("sentence-transformers is for vectors of texts, and " + given,
           "--format hf; an encoder without an adapter (model.type: bert) gives the mean of the vectors of a text's "
           "tokens "
           "with --set model.config.head=embedder");
}

void export_texts(const ExportRequest& request, monitor::Console& console) {
  Found found = find_model(request);
  check_format(request, found.source);
  const auto model = trained::open(std::move(found.source));
  check_merge(request, model->built);
  if (model->built.adapter || request.format != "hf") merge(request, found.quantized, model->built, console);
  const StoredType type = type_of(request, model->context);
  if (request.format == "gguf") return export_gguf(*model, request.out, type);
  request.format == "hf" ? export_transformers(*model, request.out, type)
                         : export_sentence_transformers(*model, request.out, type);
}

/// Copies the adapter that a run has written, or writes that of a checkpoint.
void export_adapter(const ExportRequest& request) {
  if (const fs::path from = adapter_folder_at(request.folder); !from.empty()) {
    fs::create_directories(request.out);
    fs::copy(from, request.out, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    return;
  }
  if (!fs::exists(request.folder)) throw Error(ExitCode::usage, {.what = "no such folder", .where = request.folder});
  trained::Source source = find_with(request, {});
  if (!source.job.spec().model.adapter)
    throw Error(ExitCode::usage, {.what = "there is no adapter", .where = request.folder, .hint = "--format hf"});
  const auto model = trained::open(std::move(source), trained::Spelling::not_needed);
  write_adapter(*model->built.model,
                {.adapter = *model->built.adapter,
                 .weights = trained_weights(*model->built.model),
                 .base = *model->job.spec().model.pretrained,
                 .learned = *model->datasets.train},
                request.out);
  if (model->signature.gives == Target::next_token) write_text_files(model->files, request.out);
}

void export_as_onnx(const ExportRequest& request, monitor::Console& console) {
  if (!request.dtype.empty() && request.dtype != "f32")
    throw Error(ExitCode::usage,
                {.what = "ONNX files are written in fp32", .where = "--dtype", .hint = "leave it out, or f32"});
  Found found = find_model(request, {"precision=fp32", "device=cpu"});
  const auto model = trained::open(std::move(found.source), trained::Spelling::not_needed);
  merge(request, found.quantized, model->built, console);
  export_onnx(*model, request.out);
}

bool is_layout(const std::string& format) { return format == "timm" || format == "torchvision"; }

/// Writes the config.json by which timm opens the folder, and fits images as the run has evaluated them.
void write_timm_config(const trained::Model& model, const fs::path& folder) {
  const ModelSpec& spec = model.job.spec().model;
  const std::vector<int64_t>& sizes = model.signature.layout.fields.front().sizes;  // [height, width, channels]
  nlohmann::ordered_json config = models::timm_config(*model.built.model, spec.architecture.name, sizes);
  if (config.is_null())
    return log::warning("no config.json is written, for timm has no model of this form; it reads the weights alone");
  nlohmann::ordered_json& reading = config["pretrained_cfg"];
  if (const auto normalization = model.datasets.train->normalization()) {
    reading["mean"] = normalization->mean;
    reading["std"] = normalization->std;
  }
  const data::ImageOptions& image = model.job.spec().data.image;
  constexpr int64_t kAnySide = 1024;
  data::Fit fit{.full_width = sizes[1], .width = sizes[1]};
  if (!image.size.is_auto())
    fit = data::ImageTransform(image, data::Split::val, 0, 0).fit(0, {.augment = false}, kAnySide, kAnySide);
  const auto width = static_cast<double>(fit.width), full = static_cast<double>(fit.full_width);
  const double share = width / full;  // timm rounds its quotient down
  reading["crop_pct"] = std::floor(width / share) < full ? std::nextafter(share, 0.0) : share;
  reading["interpolation"] = fit.filter == data::Filter::bicubic ? "bicubic" : "bilinear";
  if (!model.signature.class_names.empty()) config["label_names"] = model.signature.class_names;
  write_file_atomically(folder / "config.json", config.dump(2) + "\n", ExitCode::environment);
}

void export_images(const ExportRequest& request, monitor::Console& console) {
  Found found = find_model(request);
  if (!found.source.signature.layout.is_image())
    throw Error(ExitCode::usage, {.what = request.format + " is for models of images, and this one reads none",
                                  .where = request.folder,
                                  .hint = formats_of(found.source)});
  if (!request.dtype.empty() && request.dtype != "f32")
    throw Error(ExitCode::usage,
                {.what = "weights of images are written in fp32", .where = "--dtype", .hint = "leave it out, or f32"});
  const auto model = trained::open(std::move(found.source), trained::Spelling::not_needed);
  check_merge(request, model->built);
  merge(request, found.quantized, model->built, console);
  models::Model& built = *model->built.model;
  const std::vector<std::string> layouts = models::layouts_of(built);
  if (std::ranges::find(layouts, request.format) == layouts.end())
    throw Error(ExitCode::usage, {.what = layouts.empty() ? "weights of this architecture have one set of names"
                                                          : "torchvision has no ViT like this",
                                  .where = "--format " + request.format,
                                  .hint = layouts.empty() ? "model.safetensors of the run" : "--format timm"});
  models::set_layout(built, request.format);
  fs::create_directories(request.out);
  write_weights(built, named_weights(built), *model->datasets.train, {request.out});
  if (request.format == "timm") write_timm_config(*model, request.out);
}

uint64_t size_of(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

/// Guard that removes the output of a failed export, if there was nothing before.
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

int export_model_command(const ExportRequest& request) {
  if (is_for_scheduler(request)) return export_scheduler_file(request);
  if (request.format.empty())
    throw Error(ExitCode::usage,
                {.what = "the format is not given", .where = "--format", .hint = formats_of(find_with(request, {}))});
  refuse_to_overwrite(request.folder, request.out);
  monitor::Console console(monitor::Console::detect(true));
  std::optional<Activity> activity(std::in_place, "export", "writing " + request.out);
  Written written(request.out);
  if (request.format == "adapter") {
    if (request.merge)
      throw Error(ExitCode::usage, {.what = "an adapter that is written alone is not merged",
                                    .where = "--merge",
                                    .hint = "leave it out, or --format hf for the whole model"});
    export_adapter(request);
  } else if (request.format == "onnx") {
    export_as_onnx(request, console);
  } else if (is_layout(request.format)) {
    export_images(request, console);
  } else {
    export_texts(request, console);
  }
  written.is_whole();
  activity.reset();
  console.show("export", request.out + "  " + monitor::bytes(static_cast<double>(size_of(request.out))));
  return 0;
}

}  // namespace gputrain::app
