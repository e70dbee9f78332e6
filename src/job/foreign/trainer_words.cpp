// Words of the Trainer's arguments for what keys here name: update rules, curves and metrics.
#include <algorithm>

#include "gputrain/config/names.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/tasks/task.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

const Words kOptimizers{{"adamw_torch", "adamw"},
                        {"adamw_torch_fused", "adamw"},
                        {"adamw_hf", "adamw"},
                        {"adamw", "adamw"},
                        {"adamw_apex_fused", "adamw"},
                        {"adamw_torch_npu_fused", "adamw"},
                        {"paged_adamw_32bit", "adamw"},
                        {"paged_adamw", "adamw"},
                        {"adamw_bnb_8bit", "adamw8bit"},
                        {"adamw_8bit", "adamw8bit"},
                        {"adamw_torch_8bit", "adamw8bit"},
                        {"paged_adamw_8bit", "adamw8bit"},
                        {"optimi_adamw", "adamw"},
                        {"adafactor", "adafactor"},
                        {"sgd", "sgd"},
                        {"lion_32bit", "lion"},
                        {"lion", "lion"},
                        {"lion_pytorch", "lion"},
                        {"lion_8bit", "lion"},
                        {"paged_lion_32bit", "lion"},
                        {"paged_lion_8bit", "lion"},
                        {"schedule_free_adamw", "schedule_free_adamw"},
                        {"muon", "muon"}};

const Words kSchedules{{"linear", "linear"},
                       {"cosine", "cosine"},
                       {"constant", "constant"},
                       {"constant_with_warmup", "constant"},
                       {"cosine_with_restarts", "cosine_restarts"},
                       {"polynomial", "polynomial"},
                       {"inverse_sqrt", "inverse_sqrt"},
                       {"cosine_with_min_lr", "cosine"},
                       {"warmup_stable_decay", "wsd"}};

const Words kMetrics{{"acc", "accuracy"},  {"matthews_correlation", "mcc"},  {"macro_f1", "f1_macro"},
                     {"roc_auc", "auc"},   {"pearsonr", "pearson"},          {"spearmanr", "spearman"},
                     {"overall_f1", "f1"}, {"overall_accuracy", "accuracy"}, {"mean_iou", "miou"},
                     {"top1_acc", "top1"}};

std::string word_of(const Words& words, const std::string& theirs) {
  const auto found = std::ranges::find(words, std::string_view(theirs), &Words::value_type::first);
  return found == words.end() ? "" : std::string(found->second);
}

/// Returns the name of a metric without the split that it is of: "accuracy" of "eval_accuracy".
std::string without_split(std::string name) {
  for (const char* split : {"eval_", "eval/", "val_", "val/", "valid_", "test_"})
    if (name.starts_with(split)) return name.substr(std::string_view(split).size());
  return name;
}

std::string metric_of(const std::string& theirs) {
  std::string name = without_split(theirs);
  if (const std::string ours = word_of(kMetrics, name); !ours.empty()) name = ours;
  return tasks::find_metric(name) == nullptr ? "" : name;
}

}  // namespace

std::string our_word(const std::string& ours, const std::string& theirs) {
  if (ours == "optimizer.type") return word_of(kOptimizers, theirs);
  if (ours == "lr_scheduler.type") return word_of(kSchedules, theirs);
  return ours == "checkpoint.metric" ? metric_of(theirs) : "";
}

}  // namespace gputrain::app::foreign
