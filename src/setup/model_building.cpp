// Construction of the model in its arena, as the job's ranks share it.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arena_tensors.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/parallel/replicas.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"
#include "weights/weight_metadata.hpp"

namespace gputrain::app {
namespace {

/// Returns a numeric option of the model; 0: the model has no such option, or it depends on the data.
int64_t model_option(const Job& job, const std::string& name) {
  for (const auto& setting : job.loaded.settings()) {
    if (setting.key == "model.config." + name && setting.value != "null") return std::stoll(setting.value);
  }
  return 0;
}

/// Warns if the pretrained weights use another vocabulary: they would treat the tokens as their own. A published
/// vocabulary is often padded for speed, so a model may know more tokens than its tokenizer.
void warn_of_other_tokens(const Job& job, const JobDatasets& datasets) {
  const JobSpec& spec = job.spec();
  const int64_t known = model_option(job, "vocab_size"), here = datasets.facts.vocabulary;
  const std::string& kind = spec.data.text.tokenizer.name;
  const bool may_be_padded = (kind == "published" || kind == "pretrained") && known > here;
  if (!datasets.train->tokenizer() || known == 0 || known == here || may_be_padded) return;
  log::warning("model.pretrained knows " + std::to_string(known) +
               " tokens, but data.text.tokenizer: " + spec.data.text.tokenizer.name + " has " + std::to_string(here) +
               ", and the same number means another token. To continue from what the weights have learned, use files "
               "made by their tokenizer, format: tokens, or data.text.tokenizer: published with their folder");
}

/// Refuses other sizes of images, with which otherwise the first evaluation would fail.
void check_sizes(const Job& job, const models::Model& model, const JobDatasets& datasets) {
  const auto& trained = datasets.train->layout();
  if (!trained.is_image() || model.takes_any_size()) return;
  for (const auto& [dataset, name] : {std::pair{datasets.val, "data.val"}, std::pair{datasets.test, "data.test"}}) {
    if (!dataset || dataset->layout().input().sizes == trained.input().sizes) continue;
    throw job.loaded.error("data.image.eval.crop",
                           fmt::format("images of {} are {}, those of data.train {}, and this {} takes one size", name,
                                       fmt::join(dataset->layout().input().sizes, "x"),
                                       fmt::join(trained.input().sizes, "x"), job.spec().model.architecture.name),
                           "set data.image.size, so that all have the same size");
  }
}

/// Broadcasts the model of rank 0. Throws if a tensor of a rank still differs.
void share_model(BuiltModel& built, comm::ProcessGroups& groups) {
  if (groups.alone()) return;
  const parallel::NamedTensors buffers = train::buffers_of(*built.model);
  parallel::check_same_layout(groups, *built.arena, buffers);
  parallel::broadcast(groups, *built.arena, buffers);
  parallel::check_replicas(groups, *built.arena, buffers, "at the start");
}

/// Refuses a layer that is neither in the file nor trained: it would give random classes.
void check_new_layers_are_trained(const Job& job, const BuiltModel& built) {
  if (!built.adapter) return;
  const int64_t classes = built.not_loaded.classes_left_out;
  if (classes > 0 && !built.model->units().back().modules.back()->is_trained()) {
    throw job.loaded.error("model.adapter",
                           "the pretrained model has " + counted(classes, "class") +
                               ", so that its last layer is left out, and the adapter leaves a new one frozen",
                           "name that layer in model.adapter.modules_to_save");
  }
  built.model->each_module(
      [&, &parts = built.not_loaded.missing_parts](const std::string& name, const nn::Module& module) {
        if (std::ranges::find(parts, name) == parts.end() || module.is_trained()) return;
        throw job.loaded.error("model.adapter",
                               "the pretrained model has no '" + name + "', and the adapter leaves a new one frozen",
                               "add " + name + " to model.adapter.modules_to_save");
      });
}

/// Sets initial values, from the seed or from files, of the parameters that have memory.
void fill_model(BuiltModel& built, const JobSpec& spec) {
  nn::initialize(*built.model, static_cast<uint64_t>(spec.seed));
  if (!built.pretrained.empty())
    built.not_loaded = load_weights(built, built.pretrained, models::OtherClasses::left_out);
  models::fit_branches(*built.model);
  if (built.adapter && !built.adapter->pretrained().empty()) load_adapter(built, built.adapter->pretrained());
}

/// Warns if weights of single pixels were trained on images of another shape with as many pixels. A published family
/// fits its weights to the images itself.
void warn_of_other_images(const BuiltModel& built) {
  if (!built.images || built.model->takes_any_size() || models::family_of(*built.model)) return;
  const auto theirs = images_of(built.pretrained);
  if (!theirs || *theirs == *built.images) return;
  log::warning(
      fmt::format("model.pretrained was trained on images of {} x {} pixels, these are of {} x {}, and this "
                  "model has weights for each pixel",
                  theirs->height, theirs->width, built.images->height, built.images->width));
}

/// Warns if a file beside the weights names another normalisation of images than that of this job.
void warn_of_other_normalization(const BuiltModel& built, const data::Dataset& train) {
  const models::PublishedImages told = published_images_beside(built.pretrained);
  const auto& theirs = told.normalization;
  const auto ours = train.normalization();
  if (!theirs || !ours || theirs->mean.size() != ours->mean.size()) return;
  const auto differ = [](const std::vector<double>& a, const std::vector<double>& b) {
    constexpr double kTolerance = 1e-3;
    return !std::ranges::equal(a, b, [](double one, double other) { return std::abs(one - other) < kTolerance; });
  };
  if (!differ(theirs->mean, ours->mean) && !differ(theirs->std, ours->std)) return;
  log::warning(
      fmt::format("model.pretrained was trained on images that were normalised otherwise: data.image: {{mean: "
                  "[{}], std: [{}]}} does as its {} says",
                  fmt::join(theirs->mean, ", "), fmt::join(theirs->std, ", "), told.file));
}

/// Warns if images were fitted otherwise for the weights, by a file beside them, in what the job does not set.
void warn_of_other_fit(const BuiltModel& built, const Job& job) {
  const data::ImageOptions& ours = job.spec().data.image;
  if (!built.images || ours.size.is_auto()) return;
  const models::PublishedImages theirs = published_images_beside(built.pretrained);
  constexpr int64_t kAnySide = 1024;
  const data::Fit fit =
      data::ImageTransform(ours, data::Split::val, 0, 0).fit(0, {.augment = false}, kAnySide, kAnySide);
  const auto is_open = [&](const std::string& key) { return job.loaded.origin("data.image.eval." + key) == "default"; };
  std::vector<std::string> keys;
  if (theirs.crop_pct && theirs.crop_mode == "center" && fit.width == fit.height && is_open("resize")) {
    const auto wanted = static_cast<int64_t>(std::floor(static_cast<double>(fit.width) / *theirs.crop_pct));
    if (wanted != fit.full_width) keys.push_back(fmt::format("resize: {}", wanted));
  }
  const std::string ours_is = fit.filter == data::Filter::bicubic ? "bicubic" : "bilinear";
  const bool is_known = theirs.interpolation == "bilinear" || theirs.interpolation == "bicubic";
  if (is_known && *theirs.interpolation != ours_is && is_open("interpolation"))
    keys.push_back("interpolation: " + *theirs.interpolation);
  if (theirs.crop_mode != "center")
    log::warning(
        fmt::format("model.pretrained was evaluated on images that were fitted by {}, as its {} says: here "
                    "they keep their shape, and the middle is cut out",
                    theirs.crop_mode, theirs.file));
  if (keys.empty()) return;
  log::warning(fmt::format(
      "model.pretrained was evaluated on images that were fitted otherwise: data.image.eval: {{{}}} does as "
      "its {} says",
      fmt::join(keys, ", "), theirs.file));
}

/// Checks that pretrained weights are good for this job.
void check_pretrained(const BuiltModel& built, const Job& job, const JobDatasets& datasets) {
  if (built.pretrained.empty()) return;
  check_new_layers_are_trained(job, built);
  warn_of_other_tokens(job, datasets);
  warn_of_other_images(built);
  warn_of_other_normalization(built, *datasets.train);
  warn_of_other_fit(built, job);
  if (const auto difference = other_targets(targets_of(built.pretrained), *datasets.train); !difference.empty())
    log::warning("model.pretrained was trained on other data: " + datasets.target_kind() + " " + difference);
}

bool has_batch_norm(models::Model& model) {
  bool found = false;
  model.each_module([&](const std::string&, nn::Module& module) {
    found = found || dynamic_cast<nn::BatchNorm2d*>(&module) != nullptr;
  });
  return found;
}

/// Cuts the model into the stages of the ranks. Keeps this rank's part in `arena_tensors`.
void cut_into_stages(BuiltModel& built, const Job& job, RankContext& context,
                     std::vector<device::ArenaTensor>& arena_tensors, bool has_memory) {
  const comm::Mesh& mesh = context.groups.mesh();
  const int parts = mesh.pipeline * mesh.virtual_stages;
  const std::vector<double> flops = built.model->flops_of_units();
  if (const auto units = std::ranges::count_if(flops, [](double one) { return one > 0; }); parts > units) {
    throw job.loaded.error(
        "parallel.pipeline",
        counted(units, "unit") + " of the model (its layers and its head) cannot be cut into " + counted(parts, "part"),
        "fewer stages" + std::string(mesh.virtual_stages > 1 ? " or virtual stages" : ""));
  }
  const std::vector<int64_t> begins = parallel::cut_units(flops, parts);
  std::erase_if(arena_tensors, [&](device::ArenaTensor& one) {
    built.units[one.name] = one.unit;
    if (parallel::stage_of_unit(one.unit, begins, mesh.pipeline) == mesh.stage_of(context.rank())) return false;
    one.value.set_requires_grad(false);
    if (device::has_memory(one.value)) device::take_memory(one.value);
    return true;
  });
  built.pipeline = std::make_unique<parallel::Pipeline>(context.groups, *built.model, begins, has_memory);
}

/// Parts of the training state that ranks of the mesh share out.
struct Sharing {
  bool state, gradients, values;
  bool in_whole_tensors;  // true: no tensor is cut between ranks
};

Sharing sharing_of(const JobSpec& spec, const comm::Mesh& mesh) {
  const std::string shard = mesh.shards() > 1 ? spec.parallel.shard : "none";
  return {.state = shard != "none",
          .gradients = shard == "gradients" || shard == "parameters",
          .values = shard == "parameters",
          .in_whole_tensors = optim::catalog().abilities(spec.optimizer.type).whole_tensors};
}

/// Makes the settings of all layers. `has_memory` false: tensors have sizes alone, and what modules make of them costs
/// nothing, such as the angles of a hundred thousand positions.
nn::Context model_context(const JobSpec& spec, const JobDatasets& datasets, RankContext& context,
                          const Sharing& sharing, bool has_memory) {
  const comm::Mesh& mesh = context.groups.mesh();
  return {.policy = context.policy,
          .device = has_memory ? context.device : at::kMeta,
          .channels_last = input_format(spec, *datasets.train, context).channels_last,
          .recompute = nn::recompute_from_name(spec.train.activation_checkpointing, spec.train.offload.activations),
          .takes_no_memory = sharing.values || !has_memory || mesh.pipeline > 1 || spec.model.quantize,
          .batch_group = spec.parallel.sync_bn ? &context.groups.tensors() : nullptr,
          .tensor_group = mesh.tensor > 1 ? &context.groups.layers() : nullptr,
          .context_group = mesh.context > 1 ? &context.groups.context() : nullptr};
}

/// Packs frozen weights as model.quantize says. A model without an adapter is only read. Sizes alone need no files.
void pack_as_asked(const Job& job, BuiltModel& built, bool has_memory) {
  const auto& quantize = job.spec().model.quantize;
  if (!quantize) return;
  if (built.adapter && built.adapter->is_written_merged()) {
    throw job.loaded.error("model.adapter.merge",
                           "the base is quantised, and the merged model would be of its rounded weights",
                           "leave it out: gputrain export RUN OUT --format hf --merge merges into the original base");
  }
  const models::PackRequest request{.type = quantize->type,
                                    .match = quantize->match,
                                    .key = "model.quantize",
                                    .is_trained = built.adapter != nullptr};
  const bool has_source = !built.pretrained.empty() && (has_memory || has_weights(built.pretrained));
  models::pack_layers(*built.model, request,
                      has_source ? weight_source(built.pretrained, *built.model) : models::TensorSource{});
}

/// Makes the model with its adapter, and the data's facts about it; without an arena.
BuiltModel make_model(const Job& job, const JobDatasets& datasets, const nn::Context& context, bool has_memory) {
  const JobSpec& spec = job.spec();
  BuiltModel built;
  built.class_names = datasets.train->class_names();
  if (const auto& layout = datasets.train->layout(); layout.is_image())
    built.images = models::ImageSize{layout.input().sizes[0], layout.input().sizes[1]};
  built.pretrained = spec.model.pretrained_path();
  built.model = models::catalog().make(spec.model.architecture, context, datasets.facts);
  if (const auto& adapter = spec.model.adapter) {
    built.adapter = models::adapters().make(adapter->type);
    built.adapter->adapt(*built.model);
  }
  freeze_parameters(job, *built.model);
  pack_as_asked(job, built, has_memory);
  check_sizes(job, *built.model, datasets);
  built.has_batch_norm = has_batch_norm(*built.model);
  built.sync_batch_norm = spec.parallel.sync_bn && built.has_batch_norm;
  if (spec.parallel.sync_bn && !built.sync_batch_norm) log::warning("parallel.sync_bn: the model has no batch norm");
  return built;
}

void count_parameters(BuiltModel& built, const std::vector<device::ArenaTensor>& arena_tensors) {
  const std::map<std::string, int64_t> packed = models::weights_of_packed(*built.model);
  for (const auto& one : arena_tensors) {
    const auto& split = one.split;
    const auto is_packed = packed.find(one.name);
    const int64_t numel = is_packed != packed.end() ? is_packed->second
                          : split ? one.value.numel() / one.value.size(split->dim) * split->whole_size()
                                  : one.value.numel();
    built.parameter_count += numel;
    if (one.trainable) built.trainable_count += numel;
  }
}

void check_frozen_layers(const Job& job, const std::vector<device::ArenaTensor>& arena_tensors) {
  for (const auto& one : arena_tensors) {
    if (one.trainable || !one.split) continue;
    throw job.loaded.error("parallel.tensor", "a frozen layer cannot be shared: " + one.name, "1");
  }
}

void make_arena(BuiltModel& built, const JobSpec& spec, const RankContext& context, const Sharing& sharing,
                const std::vector<device::ArenaTensor>& arena_tensors) {
  const comm::Mesh& mesh = context.groups.mesh();
  const bool is_narrow = spec.optimizer.has_narrow_master();
  built.arena = std::make_unique<device::Arena>(
      arena_tensors, device::ArenaOptions{.gradients = sharing.gradients ? device::Kept::owned : device::Kept::whole,
                                          .values = sharing.values ? device::Kept::owned : device::Kept::whole,
                                          .values_type = is_narrow ? std::optional(at::kBFloat16) : std::nullopt,
                                          .state_on_host = spec.train.offload.optimizer,
                                          .rounding_seed = static_cast<uint64_t>(spec.seed),
                                          .working_type = is_narrow ? std::nullopt : ops::working_type(context.policy),
                                          .shards = sharing.state && !sharing.in_whole_tensors ? mesh.shards() : 1,
                                          .parts = bucket_limits(spec.parallel)});
  device::release_unused(context.device);  // previous memory of the parameters, with frozen ones in fp32
  for (const auto& arena_tensor : arena_tensors) {
    if (arena_tensor.trainable) built.parameters.push_back(arena_tensor.value);
  }
  if (!sharing.state) return;
  built.owners = sharing.in_whole_tensors ? parallel::shards_of_tensors(*built.arena, mesh.shards())
                                          : parallel::equal_shards(*built.arena, mesh.shards());
  built.arena->own(built.owners[static_cast<size_t>(mesh.shard_of(context.rank()))]);
}

/// Lays out the model in its arena, with the shares of all ranks; nothing is filled yet. `has_memory` false: all of it
/// has sizes, but parameters, gradients and tensors made beside them have no memory.
BuiltModel lay_out_model(const Job& job, const JobDatasets& datasets, RankContext& context, bool has_memory) {
  const JobSpec& spec = job.spec();
  const comm::Mesh& mesh = context.groups.mesh();
  const Sharing sharing = sharing_of(spec, mesh);
  BuiltModel built = make_model(job, datasets, model_context(spec, datasets, context, sharing, has_memory), has_memory);
  auto arena_tensors = arena_tensors_of(job, *built.model);
  count_parameters(built, arena_tensors);
  check_frozen_layers(job, arena_tensors);
  if (mesh.pipeline > 1) cut_into_stages(built, job, context, arena_tensors, has_memory);
  make_arena(built, spec, context, sharing, arena_tensors);
  return built;
}

}  // namespace

BuiltModel build_model(const Job& job, const JobDatasets& datasets, RankContext& context) {
  BuiltModel built = lay_out_model(job, datasets, context, /*has_memory=*/true);
  if (built.arena->keeps_owned_values_only()) {
    built.sharded = std::make_unique<parallel::ShardedParameters>(context.groups, *built.arena, *built.model);
    built.sharded->fill([&] { fill_model(built, job.spec()); });
  } else {
    fill_model(built, job.spec());
  }
  check_pretrained(built, job, datasets);
  share_model(built, context.groups);
  return built;
}

void start_adapter(BuiltModel& built, RankContext& context) {
  models::Model& model = *built.model;
  if (!models::starts_from_base(model)) return;
  const auto find = [&] { models::find_starts(model); };
  const auto start = [&] { models::start_branches(model); };
  if (built.sharded) {
    for (int64_t unit = 0; unit < built.sharded->units(); ++unit)
      built.sharded->with_unit(unit, find, parallel::Values::frozen);
  } else {
    find();
  }
  if (!context.groups.alone()) parallel::broadcast(context.groups, train::buffers_of(model));
  built.sharded ? built.sharded->change(start, parallel::Values::trained) : start();
}

BuiltModel model_without_memory(const Job& job, const JobDatasets& datasets, RankContext& context) {
  return lay_out_model(job, datasets, context, /*has_memory=*/false);
}

}  // namespace gputrain::app
