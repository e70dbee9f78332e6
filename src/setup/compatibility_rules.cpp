// Rules of what does not go together. A rule is one entry here; nothing else has to know of it.
#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

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
      {"parallel.compress: powersgd", excludes, "parallel.shard",
       "powersgd needs the whole gradient of a matrix on every rank", "bf16 or fp16, or parallel.shard: none"},
      {"parallel.compress: powersgd", excludes, "parallel.tensor",
       "powersgd needs whole matrices, and ranks share them", "bf16 or fp16, or parallel.tensor: 1"},
      {"parallel.compress: powersgd", excludes, "parallel.pipeline",
       "powersgd compares what all ranks send, and stages of a pipeline have other matrices",
       "bf16 or fp16, or parallel.pipeline: 1"},
      {"parallel.compress: powersgd", excludes, "precision: fp16",
       "powersgd keeps errors from step to step, but the loss scale of fp16 changes between steps",
       "fp16, or precision: bf16"},
      {"parallel.powersgd_rank", needs, "parallel.compress: powersgd",
       "powersgd_rank is for parallel.compress: powersgd", "leave it out, or parallel.compress: powersgd"},
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
      {"optimizer.master: bf16", excludes, "parallel.compress: fp16 or bf16", "gradients are sent in bf16 already",
       or_wide("parallel.compress: none")},
      {"optimizer.master: bf16", excludes, "parallel.compress: powersgd", "gradients are sent in bf16 already",
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
      {"train.micro_batch_size: a list", excludes, "a task that compares the samples of all ranks",
       "{task} compares samples of all ranks, which need one size", "one number"},
      {"train.activation_checkpointing: block", needs, "a model with blocks", "{model} has no blocks to recompute",
       "leave it out"},
      {"train.activation_checkpointing: selective", needs, "a model with norms and activations",
       "{model} has nothing that is cheap to recompute", "block if the model has blocks, or leave it out"},
      {"data.text.packing", excludes, "a task that reads each text in a row of its own",
       "{task} reads each text in a row of its own", "leave it out"},
      {"lr_scheduler.type: plateau", needs, "data.val with eval.interval",
       "{curve} follows evaluations, and there are none", "data.val with eval.interval: 1ep, or another curve"},
      {"log.histograms", excludes, "parallel.tensor",
       "no rank has whole layers, because ranks share them (parallel.tensor)", "null"},
      {"log.histograms", excludes, "parallel.pipeline",
       "no rank has all layers, because there are stages (parallel.pipeline)", "null"},
      {"eval.sample", excludes, "parallel.pipeline",
       "a text is written token by token, for which the stages of parallel.pipeline would wait",
       "null; gputrain generate writes texts with the weights of a checkpoint"},
      {"alloc_conf", excludes, "device: cpu", "configures GPU memory, but device is cpu",
       "remove it, or set device: auto"},
      no_graph("parallel.shard: parameters",
               "parallel.shard: parameters gives and takes the memory of weights within the step"),
      no_graph("parallel.pipeline", "the stages of a pipeline run other passes"),
      no_graph("parallel.compress: powersgd", "parallel.compress: powersgd runs a QR decomposition within the step"),
  };
}

}  // namespace

const std::vector<CompatibilityRule>& compatibility_rules() {
  static const std::vector<CompatibilityRule> rules = [] {
    std::vector<CompatibilityRule> all = rules_of_ranks();
    for (const auto& more : {rules_of_weights(), rules_of_steps()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return rules;
}

}  // namespace gputrain::app
