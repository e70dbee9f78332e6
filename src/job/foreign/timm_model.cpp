// The model of a timm job: its options, and how its images are normalised.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "timm.hpp"

namespace gputrain::app::foreign {

namespace {

using config::Node;
namespace fs = std::filesystem;

/// Returns the options of the model that --model-kwargs give: a map, or words such as embed_dim=192.
std::vector<Node> model_options(const Moving& job) {
  const Node* given = job.given("model_kwargs");
  if (given == nullptr) return {};
  if (given->kind == Node::Kind::map) return given->parts;
  std::vector<Node> options;
  const auto add = [&](const std::string& word) {
    Node option = config::document(word.substr(word.find('=') + 1), "model_kwargs");
    option.key = word.substr(0, word.find('='));
    options.push_back(std::move(option));
  };
  if (given->kind == Node::Kind::scalar) add(given->text);
  for (const Node& word : given->parts) add(word.text);
  return options;
}

/// Moves options of the model, and those that keys of their own give.
void finish_options(Moving& job, const std::string& type) {
  const bool is_vit = type.starts_with("vit"), is_convnext = type.starts_with("convnext");
  static const Words kVit{{"patch_size", "patch_size"}, {"embed_dim", "n_embd"},
                          {"depth", "n_layer"},         {"num_heads", "n_head"},
                          {"qkv_bias", "qkv_bias"},     {"drop_path_rate", "drop_path"},
                          {"global_pool", "pooling"},   {"attn_drop_rate", "attention_dropout"}};
  static const Words kConvnext{{"depths", "blocks"}, {"dims", "channels"}, {"drop_path_rate", "drop_path"}};
  const Words& known = is_vit ? kVit : kConvnext;
  std::string left;
  for (Node option : model_options(job)) {
    const std::string name = std::exchange(option.key, "");
    const auto found = std::ranges::find(known, std::string_view(name), &Words::value_type::first);
    if (name == "img_size") {
      job.set("data.image.size", option.text);
    } else if (found != known.end() && (is_vit || is_convnext)) {
      job.set("model.config." + std::string(found->second),
              name == "global_pool" && option.text == "avg" ? "mean" : config::to_flow(option));
    } else {
      left += (left.empty() ? "" : ", ") + name;
    }
  }
  if (!left.empty())
    job.tell("model_kwargs", "no such options here: " + left + "; `gputrain describe model " + type + "`");
  if (is_vit) job.set("model.config.layout", "timm", "whose names the written weights have");
  if (job.is_on("gp")) {
    if (is_vit && (job.text("gp") == "avg" || job.text("gp") == "token"))
      job.set("model.config.pooling", job.text("gp") == "avg" ? "mean" : "token");
    else if (job.text("gp") != "avg")
      job.tell("gp", "no such pooling here: `gputrain describe model " + type + "`");
  }
  if (!job.is_on("drop")) return;
  if (type.starts_with("mobilenet") || type.starts_with("efficientnet"))
    job.set("model.config.dropout", job.text("drop"));
  else
    job.tell("drop", is_vit ? "timm drops before the last layer alone; model.config.dropout drops in each block"
                            : "timm drops before the last layer, for which there is no key of this model");
}

}  // namespace

void finish_timm_model(Moving& job) {
  std::string name = job.has("model") ? job.text("model") : "resnet50";
  const std::string whole = name;
  name = name.substr(0, name.find('.'));
  const std::string type = models::type_of_timm(name);
  if (type.empty())
    throw Error(ExitCode::usage, {.what = "gputrain has no model '" + whole + "'",
                                  .where = "model",
                                  .hint = "`gputrain list models` shows those it has; timm's vit, resnet, convnext, "
                                          "tf_efficientnetv2 and mobilenetv3 are among them"});
  job.set("model.type", type, job.has("model") ? "" : kTimm);
  finish_options(job, type);
  if (job.has("output"))
    job.set_text("output_dir",
                 (fs::path(job.text("output")) / (job.has("experiment") ? job.text("experiment") : name)));
  if (const char* key = job.has("pretrained_path") ? "pretrained_path" : "initial_checkpoint"; job.has(key)) {
    job.set_text("model.pretrained", job.text(key));
  } else if (job.is_on("pretrained")) {
    if (whole == name)
      job.tell("pretrained", "name the weights: model.pretrained: timm/" + name + ".TAG, as on the Hub");
    else {
      job.set_text("model.pretrained", "timm/" + whole);
      job.remark("`gputrain fetch timm/" + whole + "` brings the weights here.");
    }
  }
}

}  // namespace gputrain::app::foreign
