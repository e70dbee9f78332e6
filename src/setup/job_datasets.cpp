// Datasets of a job, and its task.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/chat/local_time.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/open.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/unset_variables.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {

int64_t JobDatasets::tokens_per_sample() const {
  const data::SampleLayout& layout = train->layout();
  const data::Field *tokens = layout.find(kTokens), *target = layout.target();
  return tokens != nullptr && target != nullptr && target->sizes == tokens->sizes ? layout.token_count() : 0;
}

namespace {

InputSpec input_of(const Job& job) {
  return tasks::catalog().reads(job.spec().task.type, models::catalog().reads(job.spec().model.architecture));
}

void add_facts(const Job& job, JobDatasets& datasets) {
  const auto& layout = datasets.train->layout();
  datasets.task = tasks::catalog().make(job.spec().task.type, {.layout = layout,
                                                               .model = input_of(job),
                                                               .label_smoothing = job.spec().train.label_smoothing,
                                                               .class_names = datasets.train->class_names(),
                                                               .train = datasets.train.get()});
  add_references(datasets);
  datasets.facts = facts_of(job, *datasets.train);
}

bool is_fraction(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && text.find('.') != std::string::npos;
}

/// Returns the local time of the run's first attempt from its ledger; none: this run continues none.
std::optional<std::tm> time_of_first_attempt(const Job& job) {
  if (job.spec().checkpoint.resume == "never") return std::nullopt;
  std::ifstream ledger(RunFolder{job.output_dir}.ledger());
  for (std::string text; std::getline(ledger, text);) {
    const auto line = parse_json(text);
    if (!line.is_object() || line.value("kind", nlohmann::json()) != "attempt") continue;
    const auto time = line.value(chat::kLocalTime, nlohmann::json());
    return time.is_string() ? chat::local_time_from(time.get<std::string>()) : std::nullopt;
  }
  return std::nullopt;
}

/// Warns of labels that another task of images would read otherwise.
void warn_of_labels(const std::vector<std::string>& classes) {
  const auto told = [&](const std::string& name, const std::string& what) {
    log::warning("data.train: " + counted(std::ssize(classes), "class") + ", such as '" + name + "': " + what);
  };
  const auto fraction = std::ranges::find_if(classes, is_fraction);
  if (fraction != classes.end()) return told(*fraction, "numbers are learned by task: {type: regression}");
  const auto set = std::ranges::find_if(classes, [](const auto& name) { return name.find('|') != std::string::npos; });
  if (set != classes.end()) told(*set, "sets of classes are learned by task: {type: multi_label_classification}");
}

/// Warns of classes all of whose samples a split has taken from the training data.
void warn_of_classes_split_off(const data::Dataset& train) {
  constexpr size_t kShown = 8;
  const auto names = train.class_names();
  std::vector<bool> has_samples(names.size());
  for (int64_t i = 0; i < train.size(); ++i) {
    const auto number = train.class_of(i);
    if (!number) return;  // classes are not known before samples are read
    if (*number < std::ssize(has_samples)) has_samples[static_cast<size_t>(*number)] = true;
  }
  std::string shown;
  size_t missing = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (has_samples[i] || ++missing > kShown) continue;
    shown += (shown.empty() ? "" : ", ") + names[i];
  }
  if (missing == 0) return;
  log::warning("data: a split leaves " + counted(static_cast<int64_t>(missing), "class") +
               " without any sample to learn from: " + printable(shown) + (missing > kShown ? ", ..." : "") +
               ". Split off less, or give data.val and data.test a path of their own");
}

/// Refuses other data with tokens or classes that the training data lacks: the model has no rows for them.
void check_range(const Job& job, const data::Dataset& train, const data::Dataset* other, const std::string& key) {
  if (other == nullptr) return;
  const auto check = [&](int64_t learned, int64_t there, const std::string& what, const std::string& option) {
    if (learned == 0 || there <= learned) return;
    throw job.loaded.error(key, "has " + grouped(there) + " " + what + ", and data.train " + grouped(learned),
                           "the same " + option + " in both");
  };
  const data::SampleLayout &own = train.layout(), &its = other->layout();
  check(own.vocabulary, its.vocabulary, "different tokens", "vocab_size");
  if (own.vocabulary == 0) check(own.outputs, its.outputs, "classes", "classes");
}

}  // namespace

std::tm time_of_texts(const Job& job) { return time_of_first_attempt(job).value_or(chat::local_time()); }

models::DataFacts facts_of(const Job& job, const data::Dataset& train) {
  const data::SampleLayout& layout = train.layout();
  const auto& sizes = layout.input().sizes;
  models::DataFacts facts{.input_shape = layout.is_image() ? std::vector<int64_t>{sizes[2], sizes[0], sizes[1]} : sizes,
                          .num_classes = layout.outputs,
                          .vocabulary = layout.vocabulary,
                          .class_names = train.class_names()};
  // The model has places for all texts that the job allows: those of other data may be longer than these.
  if (layout.token_count() > 0) facts.longest_text = job.spec().data.text.max_length.value.value_or(0);
  return facts;
}

JobDatasets datasets_of(const Job& job, std::shared_ptr<const data::Dataset> train) {
  JobDatasets datasets;
  datasets.train = std::move(train);
  add_facts(job, datasets);
  return datasets;
}

namespace {

JobDatasets opened(const Job& job, Purpose purpose, const std::optional<std::tm>& time) {
  if (purpose != Purpose::reading)
    tasks::catalog().check_head(job.spec().task.type, models::catalog().reads(job.spec().model.architecture));
  // Chat templates may write the date: all attempts must have the same texts.
  chat::set_local_time(time ? *time : time_of_texts(job));
  const Activity activity("data",
                          "reading " + (job.spec().data.train.path.empty() ? "data" : job.spec().data.train.path));
  JobDatasets datasets;
  const std::filesystem::path pretrained = job.spec().model.pretrained_path();
  const bool says_nothing =
      std::filesystem::is_directory(pretrained) && !std::filesystem::exists(pretrained / "config.json");
  if (!pretrained.empty() && (purpose != Purpose::planning || says_nothing)) check_weights(pretrained);
  std::vector<std::string> own_folders{job.output_dir.string()};
  if (const auto& mirror = job.spec().checkpoint.mirror) own_folders.push_back(*mirror);
  static_cast<data::DatasetSplits&>(datasets) =
      data::open_datasets(job.spec().data, input_of(job), own_folders, pretrained.string());
  check_range(job, *datasets.train, datasets.val.get(), "data.val");
  check_range(job, *datasets.train, datasets.test.get(), "data.test");
  add_facts(job, datasets);
  const auto& layout = datasets.train->layout();
  const bool has_classes = layout.target() != nullptr && layout.target()->type == at::kLong;
  if (layout.outputs == 1 && has_classes && datasets.tokens_per_sample() == 0) {
    const auto names = datasets.train->class_names();
    log::warning("data.train: all samples are of one class" + (names.empty() ? "" : " ('" + names.front() + "')") +
                 ": there is nothing to learn; for imagefolder, path must be the folder that contains a "
                 "folder for each class");
  }
  const auto is_split = [](const auto& source) { return source && source->split; };
  if (has_classes && (is_split(job.spec().data.val) || is_split(job.spec().data.test)))
    warn_of_classes_split_off(*datasets.train);
  if (layout.is_image() && job.spec().task.type.name.empty()) warn_of_labels(datasets.train->class_names());
  return datasets;
}

}  // namespace

JobDatasets open_datasets(const Job& job, Purpose purpose, const std::optional<std::tm>& time) {
  try {
    return opened(job, purpose, time);
  } catch (const ReportedElsewhere&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    throw with_unset_variable(job, error);
  }
}

void check_sample(const Job& job, const JobDatasets& datasets) {
  const auto& sample = job.spec().eval.sample;
  if (!sample) return;
  const auto tokenizer = datasets.train->tokenizer();
  if (!tokenizer) {
    throw job.loaded.error("eval.sample", "the training data has no vocabulary to write text with",
                           "leave eval.sample out, or train on format: text");
  }
  std::optional<chat::ChatTemplate> chat_template;
  try {
    if (!sample->messages.empty())
      chat_template = chat::choose_chat_template(job.spec().data.text.chat_template, tokenizer->folder());
  } catch (const Error& missing) {
    throw job.loaded.error("eval.sample.messages", "there is no chat template for them: " + missing.parts().what,
                           "data.text.chat_template: chatml, or a file");
  }
  train::prompts_of(*sample, *tokenizer, conversation_form(job.spec(), chat_template));
}

}  // namespace gputrain::app
