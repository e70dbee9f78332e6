// Keys of tools whose jobs cannot be moved as a whole: Lightning, nanoGPT, Keras, scripts of transformers.
#include "moving.hpp"

namespace gputrain::app::foreign {

const Table& other_rows() {
  static const Table kRows{
      told({"logging_dir"},
           "leave it out: metrics.jsonl in the run folder has all metrics; log.tensorboard writes tb/ beside it"),
      told({"torch_compile", "compile"}, "leave it out: nothing is compiled here"),
      told({"dataset", "dataset_name", "data_dir", "train_data", "train_file"},
           "write `data: {train: {path: ..., format: ...}}`; `gputrain list datasets` has the formats"),
      told({"validation_file", "val_data", "val_file"},
           "write `data: {val: {path: ...}}`, or `{split: 10%}` of data.train"),
      told({"enable_checkpointing", "enable_checkpoint", "always_save_checkpoint"},
           "leave it out: checkpoint.interval says how often, and the end is always saved"),
      told({"lr_decay_iters", "decay_lr"},
           "leave it out: the learning rate decays until training ends; lr_scheduler.type: constant does not decay"),
      told({"adam_beta1", "adam_beta2", "beta1", "beta2"}, "optimizer.betas: [0.9, 0.999] has both"),
      told({"eval_iters", "limit_val_batches"},
           "leave it out: all of data.val is evaluated, or the first eval.max_tokens of it"),
      by({"early_stopping"},
         [](Moving& job, const std::string&, const config::Node& value) {
           const bool is_count = !value.text.empty() && value.text.find_first_not_of("0123456789") == std::string::npos;
           job.set("eval.early_stopping.patience", is_count ? value.text : "3");
         }),
      told(
          {"load_best_model_at_end"},
          "leave it out: the best checkpoint is RUN/ckpt/best (checkpoint.keep_best), which `gputrain eval`, `predict` "
          "and `export` take; RUN/model.safetensors are the last weights")};
  return kRows;
}

const Table& other_top_rows() {
  static const Table kRows{
      told({"training"}, "did you mean 'train'?"),
      told({"trainer"},
           "Lightning's Trainer is no group here: accelerator is `device`, precision `precision`, max_epochs and "
           "max_steps stand under `train:`, and `gputrain launch --nproc-per-node` gives the devices"),
      told({"strategy", "backend", "distributed_backend"},
           "leave it out: ranks connect by themselves (`gputrain launch`); parallel.shard says what "
           "they shard")};
  return kRows;
}

}  // namespace gputrain::app::foreign
