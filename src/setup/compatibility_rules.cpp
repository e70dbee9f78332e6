// Features of jobs, and rules of what does not go together. A feature and a rule are an entry each; nothing else has to
// know of them.
#include <utility>

#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

/// Abilities of the job's entries of catalogs.
struct JobAbilities {
  models::Abilities model;
  tasks::Abilities task;
  optim::Abilities rule;
  optim::CurveAbilities curve;
  bool continues_texts = false;
};

using FeatureList = std::vector<std::pair<const char*, bool>>;

FeatureList features_of_ranks(const train::ParallelSpec& spec) {
  return {{"parallel.tensor", spec.tensor > 1},
          {"parallel.pipeline", spec.pipeline > 1},
          {"parallel.virtual_stages", spec.virtual_stages > 1},
          {"parallel.context", spec.context > 1},
          {"parallel.shard", spec.shard != "none"},
          {"parallel.shard: gradients", spec.shard == "gradients"},
          {"parallel.shard: parameters", spec.shard == "parameters"},
          {"parallel.replicate", spec.replicate > 1},
          {"parallel.compress", spec.compress != "none"}};
}

FeatureList features_of_updates(const JobSpec& spec, const JobAbilities& can) {
  return {{"optimizer.averages: bf16", can.rule.narrow_state},
          {"optimizer.master: bf16", spec.optimizer.has_narrow_master()},
          {"an optimizer that can update bf16 weights", can.rule.narrow_masters},
          {"an optimizer that updates whole matrices", can.rule.whole_tensors},
          {"an optimizer with an average of the weights", can.rule.has_average},
          {"an optimizer that needs its state on the device", !can.rule.in_parts},
          {"train.ema", spec.train.ema.has_value()},
          {"train.swa", spec.train.swa.has_value()},
          {"lr_scheduler.type: plateau", can.curve.follows_evaluations},
          {"data.val with eval.interval", spec.data.val && spec.eval.interval},
          {"precision: bf16", spec.precision == "bf16"},
          {"precision: fp16", spec.precision == "fp16"},
          {"precision: fp64", spec.precision == "fp64"}};
}

FeatureList features_of_steps(const JobSpec& spec) {
  const auto& how = spec.train.activation_checkpointing;
  const auto is_taken_away = [](const std::string& pattern) { return pattern.starts_with('!'); };
  return {{"train.activation_checkpointing: block", how == "block"},
          {"train.activation_checkpointing: selective", how == "selective"},
          {"train.offload.activations", spec.train.offload.activations},
          {"train.offload.optimizer", spec.train.offload.optimizer},
          {"train.micro_batch_size: auto", spec.train.searches_micro_batch()},
          {"train.cuda_graphs: auto", spec.train.cuda_graphs == "auto"},
          {"data.text.packing", spec.data.text.packing},
          {"eval.sample", spec.eval.sample.has_value()},
          {"eval.sample.messages", spec.eval.sample && !spec.eval.sample->messages.empty()},
          {"a chat template, or a published tokenizer, which may bring one",
           spec.data.text.chat_template || spec.data.text.tokenizer.name == "published" || spec.model.pretrained},
          {"alloc_conf", spec.alloc_conf.has_value()},
          {"device: cpu", spec.device == "cpu"},
          {"model.pretrained", spec.model.pretrained.has_value()},
          {"model.adapter", spec.model.adapter.has_value()},
          {"model.quantize", spec.model.quantize.has_value()},
          {"model.freeze", !std::ranges::all_of(spec.model.freeze, is_taken_away)}};
}

FeatureList features_of_model(const models::Abilities& model, const tasks::Abilities& task, bool continues_texts) {
  return {{"model.config.tie_embeddings", model.ties_ends},
          {"model.config.dropout", model.drops_out},
          {"model.config.neftune_alpha", model.adds_noise},
          {"model.config.qk_norm_across_heads", model.norms_across_heads},
          {"losses of the experts' routers", model.has_router_losses},
          {"a model that continues texts", continues_texts},
          {"a model with blocks", model.recomputes_blocks},
          {"a model with norms and activations", model.recomputes_selectively},
          {"a model that says which unit computes", model.announces_units},
          {"a model and a task whose layers can be shared", model.splits_layers && task.takes_parts_of_texts},
          {"a model and a task whose texts can be shared", model.takes_parts_of_texts && task.takes_parts_of_texts},
          {"a model and a task that run in stages", model.runs_in_parts && task.takes_last_layer_alone},
          {"a task that reads each text in a row of its own", task.reads_rows_alone}};
}

FeatureList all_features_of(const JobSpec& spec, const JobAbilities& can) {
  FeatureList all = features_of_ranks(spec.parallel);
  for (const FeatureList& more : {features_of_updates(spec, can), features_of_steps(spec),
                                  features_of_model(can.model, can.task, can.continues_texts)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

JobAbilities abilities_of(const JobSpec& spec, const tasks::Task* task) {
  const InputSpec model = models::catalog().reads(spec.model.architecture);
  return {.model = models::catalog().abilities(spec.model.architecture),
          .task = task != nullptr ? task->abilities() : tasks::catalog().abilities(spec.task.type, model),
          .rule = optim::catalog().abilities(spec.optimizer.type),
          .curve = optim::schedules().abilities(spec.lr_scheduler.type),
          .continues_texts = model.target == Target::next_token};
}

constexpr auto excludes = Relation::excludes, needs = Relation::needs;

constexpr const char* kLearnsNextToken = "a model of type gpt that learns the next token";

std::vector<CompatibilityRule> rules_of_ranks() {
  return {
      {"parallel.tensor", needs, "a model and a task whose layers can be shared",
       std::string("ranks share layers only of ") + kLearnsNextToken, "1"},
      {"parallel.tensor", excludes, "model.adapter", "an adapter's layers are not shared", "1"},
      {"parallel.tensor", excludes, "an optimizer that updates whole matrices",
       "{optimizer} updates whole matrices, but ranks share them", "1, or another optimizer"},
      {"parallel.tensor", excludes, "model.config.dropout", "dropout would differ between the ranks",
       "1, or model.config.dropout: 0"},
      {"parallel.tensor", excludes, "model.config.neftune_alpha", "the noise would differ between the ranks",
       "1, or model.config.neftune_alpha: 0"},
      {"parallel.tensor", excludes, "model.config.qk_norm_across_heads", "a norm over all heads needs all heads",
       "1, or parallel.shard: parameters, which any number of ranks shares"},
      {"parallel.tensor", Relation::may_clash, "model.freeze",
       "a frozen parameter cannot be one that ranks share; a norm that all have can be frozen", "1"},
      {"parallel.pipeline", needs, "a model and a task that run in stages",
       std::string("stages have parts only of ") + kLearnsNextToken, "1"},
      {"parallel.pipeline", excludes, "losses of the experts' routers", "no stage has the routers of all layers",
       "1, or model.config.router_aux_loss_coef: 0 and router_z_loss_coef: 0"},
      {"parallel.pipeline", excludes, "model.freeze", "frozen weights and adapters are not for stages",
       "1, or parallel.shard: parameters, which shares them out"},
      {"parallel.pipeline", excludes, "model.adapter", "frozen weights and adapters are not for stages",
       "1, or parallel.shard: parameters, which shares them out"},
      {"parallel.pipeline", excludes, "an optimizer that updates whole matrices",
       "{optimizer} updates whole matrices, and a rank of a stage may have none",
       "1, parallel.shard: none, or another optimizer", "parallel.shard"},
      {"parallel.pipeline", excludes, "parallel.shard: parameters",
       "the embedding is the head as well (tie_embeddings), and no rank has all of it",
       "1, parallel.shard: gradients, or tie_embeddings: false", "model.config.tie_embeddings"},
      {"parallel.virtual_stages", needs, "parallel.pipeline", "there are no stages, because parallel.pipeline is 1",
       "1, or parallel.pipeline: 2"},
      {"parallel.virtual_stages", excludes, "parallel.shard: gradients",
       "every pass of a part would send its gradients to their owners", "1, or parallel.shard: optimizer"},
      {"parallel.virtual_stages", excludes, "parallel.shard: parameters",
       "every pass of a part would send its gradients to their owners", "1, or parallel.shard: optimizer"},
      {"parallel.context", needs, "a model and a task whose texts can be shared",
       std::string("ranks share the positions of texts only for ") + kLearnsNextToken, "1"},
      {"parallel.shard: parameters", needs, "a model that says which unit computes",
       "{model} does not say when its parts compute (nn::UnitRange), for their weights to be gathered", "gradients"},
      {"parallel.shard: parameters", excludes, "an optimizer that updates whole matrices",
       "{optimizer} updates whole matrices, but each rank has a part",
       "gradients, which shares out whole tensors, or another optimizer"},
      {"parallel.replicate", needs, "parallel.shard", "each rank is a replica already, because parallel.shard is none",
       "1, or parallel.shard: parameters, gradients or optimizer"},
      {"parallel.replicate", excludes, "an optimizer that updates whole matrices",
       "{optimizer} updates whole matrices, and a rank may have none of a bucket", "1, or another optimizer"},
  };
}

std::vector<CompatibilityRule> rules_of_weights() {
  const char* const wide = "fp32";
  const auto or_wide = [&](const char* hint) { return std::string(wide) + ", or " + hint; };
  return {
      {"optimizer.master: bf16", needs, "precision: bf16", "layers compute in another precision than bf16",
       or_wide("precision: bf16")},
      {"optimizer.master: bf16", needs, "an optimizer that can update bf16 weights", "{optimizer} needs fp32 weights",
       or_wide("optimizer.type: adamw8bit or adamw")},
      {"optimizer.master: bf16", excludes, "parallel.tensor", "ranks that share layers keep fp32 weights",
       or_wide("parallel.tensor: 1")},
      {"optimizer.master: bf16", excludes, "parallel.pipeline", "stages of a pipeline keep fp32 weights",
       or_wide("parallel.pipeline: 1")},
      {"optimizer.master: bf16", excludes, "parallel.compress", "gradients are sent in bf16 already",
       or_wide("parallel.compress: none")},
      {"optimizer.averages: bf16", excludes, "precision: fp64", "averages in bf16 do not go with weights in fp64",
       or_wide("another precision")},
      {"train.swa", excludes, "train.ema",
       "an evaluation can take one average of the weights, and train.ema is another", "one of the two"},
      {"train.ema", excludes, "an optimizer with an average of the weights",
       "{optimizer} has an average of the weights already", "leave it out"},
      {"train.swa", excludes, "an optimizer with an average of the weights",
       "{optimizer} has an average of the weights already", "leave it out"},
      {"model.adapter", needs, "model.pretrained",
       "an adapter changes little, and there is nothing to change: model.pretrained is missing",
       "model.pretrained: DIR"},
      {"model.quantize", needs, "model.adapter", "quantised weights are not trained, and there is nothing beside them",
       "null, or model.adapter: {type: lora}"},
  };
}

std::vector<CompatibilityRule> rules_of_steps() {
  const auto no_graph = [](const char* other, const char* why) {
    return CompatibilityRule{"train.cuda_graphs: auto", Relation::gives_up, other, why};
  };
  return {
      {"train.micro_batch_size: auto", excludes, "parallel.pipeline",
       "auto measures one pass at a time, and the stages of a pipeline run several",
       "a number; each stage holds as many micro-batches as there are stages from it to the end"},
      {"train.activation_checkpointing: block", needs, "a model with blocks", "{model} has no blocks to recompute",
       "leave it out"},
      {"train.activation_checkpointing: selective", needs, "a model with norms and activations",
       "{model} has nothing that is cheap to recompute", "block if the model has blocks, or leave it out"},
      {"train.offload.activations", needs, "train.activation_checkpointing: block",
       "the inputs of recomputed blocks are what waits on the host", "false, or train.activation_checkpointing: block"},
      {"train.offload.optimizer", excludes, "an optimizer that needs its state on the device",
       "{optimizer} does not update its state in parts", "false, or optimizer.type: adamw, lion or sgd"},
      {"data.text.packing", excludes, "a task that reads each text in a row of its own",
       "{task} reads each text in a row of its own", "leave it out"},
      {"lr_scheduler.type: plateau", needs, "data.val with eval.interval",
       "{curve} follows evaluations, and there are none", "data.val with eval.interval: 1ep, or another curve"},
      {"eval.sample", excludes, "parallel.pipeline",
       "a text is written token by token, for which the stages of parallel.pipeline would wait",
       "null; gputrain generate writes texts with the weights of a checkpoint"},
      {"eval.sample", needs, "a model that continues texts", "{model} does not write texts", "null"},
      {"eval.sample.messages", needs, "a chat template, or a published tokenizer, which may bring one",
       "it says how a conversation is written as a text", "data.text.chat_template: chatml, or eval.sample.prompt"},
      {"alloc_conf", excludes, "device: cpu", "configures GPU memory, but device is cpu",
       "remove it, or set device: auto"},
      no_graph("parallel.shard: parameters",
               "parallel.shard: parameters gives and takes the memory of weights within the step"),
      no_graph("train.offload.activations", "activations are copied on streams of their own"),
      no_graph("train.offload.optimizer", "the optimizer's state is copied on streams of its own"),
      no_graph("parallel.pipeline", "the stages of a pipeline run other passes"),
  };
}

}  // namespace

std::vector<std::string> all_features() {
  std::vector<std::string> names;
  for (const auto& [name, has] : all_features_of({}, {})) names.emplace_back(name);
  return names;
}

Features features_of(const JobSpec& spec, const tasks::Task* task) {
  Features features;
  for (const auto& [name, has] : all_features_of(spec, abilities_of(spec, task)))
    if (has) features.insert(name);
  return features;
}

const std::vector<CompatibilityRule>& compatibility_rules() {
  static const std::vector<CompatibilityRule> rules = [] {
    std::vector<CompatibilityRule> all = rules_of_ranks();
    for (const auto& more : {rules_of_weights(), rules_of_steps()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return rules;
}

}  // namespace gputrain::app
