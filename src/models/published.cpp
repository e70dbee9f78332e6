#include "gputrain/models/published.hpp"

#include <algorithm>
#include <functional>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/models/class_names.hpp"
#include "gputrain/nn/packing.hpp"
#include "published/config_json.hpp"

namespace gputrain::models {
namespace {

std::unique_ptr<const PublishedFamily> first_family(const std::function<bool(const PublishedFamily&)>& is_wanted) {
  for (const std::string& name : families().names()) {
    std::unique_ptr<const PublishedFamily> family = families().make(families().with_defaults(name));
    if (is_wanted(*family)) return family;
  }
  return nullptr;
}

/// Lists the families: "gpt2 and llama", "gpt2, llama and qwen2".
std::string known_families() {
  const auto names = families().names();
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

constexpr const char* kClassifies = "ForSequenceClassification";  // end of an architecture's name

bool classifies(const nlohmann::json& config) {
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array() || architectures->empty()) return false;
  const nlohmann::json& first = architectures->front();
  return first.is_string() && first.get_ref<const std::string&>().ends_with(kClassifies);
}

}  // namespace

FamilyCatalog& families() {
  static FamilyCatalog catalog("family");
  return catalog;
}

PublishedFamily::~PublishedFamily() = default;

std::string PublishedFamily::parameter_of(const Model&, const std::string& file_name) const { return file_name; }

std::string PublishedFamily::file_name_of(const Model&, const std::string& parameter) const { return parameter; }

at::Tensor PublishedFamily::fitted(const Model&, const FileTensor& theirs) const { return theirs.values; }

namespace {

/// Reads an image size: the side of a square, or a list whose last two numbers are height and width.
std::optional<ImageSize> image_size_of(const nlohmann::json& value) {
  const auto is_size = [](const nlohmann::json& one) { return one.is_number_integer() && one.get<int64_t>() > 0; };
  if (is_size(value)) return ImageSize{value, value};
  if (!value.is_array() || value.size() < 2 || !std::ranges::all_of(value, is_size)) return std::nullopt;
  return ImageSize{value[value.size() - 2], value[value.size() - 1]};
}

}  // namespace

std::optional<ImageSize> image_size_in(const nlohmann::json& config) {
  // The size that a timm model was built with comes before the size of its first training.
  for (const char* path : {"/image_size", "/model_args/img_size", "/pretrained_cfg/input_size"}) {
    const nlohmann::json::json_pointer pointer(path);
    if (!config.is_object() || !config.contains(pointer)) continue;
    if (const auto size = image_size_of(config.at(pointer))) return size;
  }
  return std::nullopt;
}

namespace {

std::optional<data::Normalization> normalization_of(const nlohmann::json& mean, const nlohmann::json& deviation) {
  const auto is_list = [](const nlohmann::json& list) {
    return list.is_array() && std::ranges::all_of(list, [](const nlohmann::json& one) { return one.is_number(); });
  };
  if (!is_list(mean) || !is_list(deviation)) return std::nullopt;
  return data::Normalization{.mean = mean.get<std::vector<double>>(), .std = deviation.get<std::vector<double>>()};
}

}  // namespace

PublishedImages timm_images_in(const nlohmann::json& config) {
  PublishedImages images;
  if (!is_timm_config(config) || !config.contains("pretrained_cfg")) return images;
  const nlohmann::json& told = config["pretrained_cfg"];
  if (!told.is_object()) return images;
  const auto value = [&](const char* key) { return told.value(key, nlohmann::json()); };
  images.size = image_size_of(value("input_size"));
  images.normalization = normalization_of(value("mean"), value("std"));
  const nlohmann::json crop = value("crop_pct");
  if (crop.is_number() && crop > 0 && crop <= 1) images.crop_pct = crop.get<double>();
  if (const nlohmann::json mode = value("crop_mode"); mode.is_string()) images.crop_mode = mode.get<std::string>();
  if (const nlohmann::json filter = value("interpolation"); filter.is_string())
    images.interpolation = filter.get<std::string>();
  return images;
}

namespace {

/// Returns how a processor normalises values from 0 to 1; it may scale those from 0 to 255 in another way first.
std::optional<data::Normalization> normalization_by(const nlohmann::json& processor) {
  auto found =
      normalization_of(processor.value("image_mean", nlohmann::json()), processor.value("image_std", nlohmann::json()));
  if (!json_value(processor, "do_normalize", true)) found = data::Normalization{.mean = {0, 0, 0}, .std = {1, 1, 1}};
  const bool is_scaled = json_value(processor, "do_rescale", true);
  const double scale = is_scaled ? 255 * json_value(processor, "rescale_factor", 1.0 / 255) : 255;
  if (!found || scale <= 0) return std::nullopt;
  for (auto* values : {&found->mean, &found->std})
    for (double& value : *values) value /= scale;
  return found;
}

}  // namespace

PublishedImages processor_images_in(const nlohmann::json& processor) {
  PublishedImages images{.file = "preprocessor_config.json"};
  if (!processor.is_object()) return images;
  images.normalization = normalization_by(processor);
  if (!json_value(processor, "do_resize", true)) return images;
  const auto filter = json_value(processor, "resample", int64_t{0});  // Pillow's number
  if (filter == 2 || filter == 3) images.interpolation = filter == 2 ? "bilinear" : "bicubic";
  const auto side = [&](const char* key, const char* part) {  // older files have a number for both sides
    const nlohmann::json size = processor.value(key, nlohmann::json());
    return size.is_number() ? size.get<double>() : json_value(size, part, 0.0);
  };
  const double resized = side("size", "shortest_edge");
  if (json_value(processor, "do_center_crop", false)) {
    const double part = resized > 0 ? side("crop_size", "height") / resized : 0;
    if (part > 0 && part <= 1) images.crop_pct = part;
  } else if (resized == 0 && side("size", "height") > 0) {
    images.crop_mode = "squash";
  }
  return images;
}

std::unique_ptr<const PublishedFamily> family_meant_by(const nlohmann::json& config) {
  return first_family([&](const PublishedFamily& family) { return family.means(config); });
}

std::unique_ptr<const PublishedFamily> family_of(const Model& model) {
  return first_family([&](const PublishedFamily& family) { return family.names(model); });
}

namespace {

/// Returns the options of model.quantize that a config.json means.
PublishedModel::Options quantized_options(const ConfigReader& reader) {
  const nlohmann::json* const told = reader.find("quantization_config");
  if (told == nullptr) return {};
  std::string kinds;
  for (const std::string& kind : nn::packings().names()) {
    kinds += (kinds.empty() ? "" : ", ") + kind;
    const auto packing = nn::packings().make(nn::packings().with_defaults(kind));
    if (auto options = told->is_object() ? packing->options_in(*told) : std::nullopt) return std::move(*options);
  }
  reader.refuse("these weights are quantised in another way than is read ('quantization_config')",
                "take the weights that they were made from; read are " + kinds + " of bitsandbytes");
}

}  // namespace

PublishedModel published_model(const nlohmann::json& config, const std::string& where) {
  if (!config.is_object()) throw Error(ExitCode::data, {.what = "not a JSON object", .where = where});
  const ConfigReader reader(config, where);
  const std::string type = reader.text("model_type", "");  // throws in any family if it is not text
  if (const auto family = family_meant_by(config)) {
    PublishedModel model = family->model_of(config, where);
    model.quantized = quantized_options(reader);
    if (model.type != "gpt" || !classifies(config)) return model;
    SpecOptions head;
    head.add("head", "classifier");
    add_labels(head, config);
    model.defaults.insert(model.defaults.end(), head.list.begin(), head.list.end());
    return model;
  }
  reader.refuse(type.empty() ? "'model_type' is missing" : "model_type '" + type + "' is not supported",
                known_families() + " are supported; for other models, give a safetensors file");
}

bool is_timm_config(const nlohmann::json& config) {
  return config.is_object() && !config.contains("model_type") && config.contains("architecture") &&
         config["architecture"].is_string();
}

nlohmann::json published_config(const Model& model) {
  const auto family = family_of(model);
  return family ? family->config_of(model) : nlohmann::json();
}

void add_labels(SpecOptions& defaults, const nlohmann::json& config) {
  if (const auto names = class_names_in(config); !names.empty())
    defaults.list.emplace_back("labels", nlohmann::json(names).dump());
}

void note_labels(nlohmann::json& config, int64_t classes, const std::vector<std::string>& names) {
  nlohmann::json names_by_number = nlohmann::json::object(), numbers_by_name = nlohmann::json::object();
  for (int64_t i = 0; i < classes; ++i) {
    const std::string number = std::to_string(i);
    const std::string name = i < std::ssize(names) ? names[static_cast<size_t>(i)] : "LABEL_" + number;
    names_by_number[number] = name;
    numbers_by_name[name] = i;
  }
  config["id2label"] = names_by_number;
  config["label2id"] = numbers_by_name;
}

nlohmann::json completed(nlohmann::json config, const Gpt& model) {
  config["vocab_size"] = model.sizes().vocabulary;
  config["tie_word_embeddings"] = model.spec().tie_embeddings;
  // Only the tokenizer knows which tokens begin, end and pad a text; a reader's defaults would be wrong.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["pad_token_id"] = nullptr;
  if (model.sizes().classes == 0) return config;
  for (nlohmann::json& architecture : config["architectures"]) {
    std::string name = architecture.get<std::string>();
    for (const char* end : {"ForCausalLM", "LMHeadModel"})
      if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
    architecture = name + kClassifies;
  }
  note_labels(config, model.sizes().classes, model.sizes().labels);
  return config;
}

}  // namespace gputrain::models
