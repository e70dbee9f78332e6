// Command `gputrain data show`: shows texts or images as the model gets them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/one_sample.hpp"
#include "gputrain/data/open.hpp"
#include "gputrain/inspect/contact_sheet.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::app {
namespace {

/// Field of a sample: whole numbers, or floating-point numbers.
struct ShownField {
  std::string name;
  std::vector<int64_t> numbers = {};
  std::vector<double> floats = {};
};
using ShownSample = std::vector<ShownField>;

const ShownField* find(const ShownSample& sample, std::string_view name) {
  const auto found = std::ranges::find(sample, name, &ShownField::name);
  return found == sample.end() ? nullptr : &*found;
}

template <class Stored, class Shown>
std::vector<Shown> elements(const data::OneSample& sample, size_t field, int64_t count) {
  const auto* const stored = sample.values<Stored>(field);
  return {stored, stored + count};
}

/// Reads a sample. Throws Error(data) if it cannot be read.
ShownSample shown_sample(const data::Dataset& dataset, int64_t index) {
  const data::OneSample sample(dataset, index, {});
  const auto& fields = dataset.layout().fields;
  ShownSample shown;
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t count = fields[i].ragged ? sample.count(i) : fields[i].numel();
    ShownField field{.name = fields[i].name};
    if (fields[i].type == at::kLong) field.numbers = elements<int64_t, int64_t>(sample, i, count);
    if (fields[i].type == at::kFloat) field.floats = elements<float, double>(sample, i, count);
    shown.push_back(std::move(field));
  }
  return shown;
}

/// Returns the text, with the learned parts between `begin` and `end`. The first token cannot be learned, because
/// nothing is before it. `targets`: null, or as many as there are tokens.
std::string marked(const std::vector<int64_t>& tokens, const std::vector<int64_t>* targets,
                   const tokenizers::Tokenizer& tokenizer, const std::string& begin, const std::string& end) {
  std::string shown;
  bool is_inside = false;
  size_t written = 0;
  const auto write_until = [&](size_t count) {
    const std::string decoded = tokenizer.decode(std::span(tokens).first(count));
    shown += printable(decoded.substr(std::min(written, decoded.size())), "\n\t");
    written = decoded.size();
  };
  for (size_t i = 0; i < tokens.size() && targets != nullptr; ++i) {
    const bool is_learned = i > 0 && (*targets)[i - 1] != kIgnoreIndex;
    if (is_learned == is_inside) continue;
    write_until(i);
    shown += is_learned ? begin : end;
    is_inside = is_learned;
  }
  write_until(tokens.size());
  return shown + (is_inside ? end : "");
}

/// Names of a field of tokens, of the tokens that are learned after them, and of a second text.
struct TextField {
  const char *tokens, *targets, *title;
};
constexpr TextField kTexts[] = {{kTokens, kTarget, ""},
                                {kPairTokens, "", "pair"},
                                {kNegativeTokens, "", "negative"},
                                {kRejectedTokens, kRejectedTarget, "rejected"}};

/// Describes the target of a whole sample: "positive", "0.5", "O B-LOC".
std::string target_text(const ShownField& target, const std::vector<std::string>& classes) {
  if (!target.floats.empty()) return fmt::format("{}", fmt::join(target.floats, " "));
  std::vector<std::string> names;
  for (const int64_t number : target.numbers) {
    const bool is_named = number >= 0 && number < std::ssize(classes);
    names.push_back(number == kIgnoreIndex ? "-"
                    : is_named             ? classes[static_cast<size_t>(number)]
                                           : fmt::format("{}", number));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

nlohmann::json json_of(const ShownSample& sample) {
  nlohmann::json object;
  for (const ShownField& field : sample) {
    const std::string name = field.name == kTarget ? "targets" : field.name;
    if (field.floats.empty()) {
      object[name] = field.numbers;
    } else {
      object[name] = field.floats;
    }
  }
  return object;
}

/// Opens the data of a role. Texts are not packed: packing only changes which of them share a row.
std::shared_ptr<const data::Dataset> data_of(const DataShowRequest& request, const Job& job) {
  data::DataSpec spec = job.spec().data;
  spec.text.packing = false;
  const InputSpec model =
      tasks::catalog().reads(job.spec().task.type, models::catalog().reads(job.spec().model.architecture));
  const auto splits =
      data::open_datasets(spec, model, {job.output_dir.string()}, job.spec().model.pretrained_path().string());
  const auto dataset = request.on == "train" ? splits.train : request.on == "val" ? splits.val : splits.test;
  if (!dataset)
    throw Error(ExitCode::usage, {.what = "the job has no data." + request.on, .hint = "add it, or leave --on out"});
  if (dataset->layout().token_count() == 0 && !dataset->layout().is_image())
    throw Error(ExitCode::usage, {.what = "the data is neither text nor images", .where = "data." + request.on});
  return dataset;
}

/// Returns whether the target is a token for each token, not a class or number of the text.
bool model_learns_tokens(const data::Dataset& dataset) {
  const data::Field *tokens = dataset.layout().find(kTokens), *target = dataset.layout().find(kTarget);
  return tokens != nullptr && target != nullptr && target->sizes == tokens->sizes && dataset.class_names().empty();
}

}  // namespace

namespace {

/// Names the job's augmentations of training images.
std::string augmentations_of(const Job& job) {
  std::string text;
  for (const auto& [name, augmentation] : job.spec().data.image.augment.active())
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

void write_contact_sheet(const DataShowRequest& request, const Job& job, const data::Dataset& dataset) {
  constexpr int64_t kImages = 24, kEpochs = 3;
  if (request.output.empty() || request.json)
    throw Error(ExitCode::usage,
                {.what = "images are shown on a page",
                 .hint = std::string("--output sheet.html") + (request.json ? ", without --json" : "")});
  const data::MixOptions mix = request.on == "train" ? job.spec().data.image.augment.mix : data::MixOptions();
  const std::string changes = request.on == "train" ? augmentations_of(job) : "";
  const ContactSheet sheet{.title = job.spec().name.value_or("images") + ": data." + request.on,
                           .text = dataset.describe() +
                                   (changes.empty() ? "; not augmented"
                                                    : "; outlined: as evaluated, then epochs 1 to " +
                                                          std::to_string(kEpochs) + ", augmented by " + changes) +
                                   (mix.is_on() ? "; below, small micro-batches, mixed" : ""),
                           .images = request.limit > 0 ? request.limit : kImages,
                           .epochs = changes.empty() ? 0 : kEpochs,
                           .seed = static_cast<uint64_t>(job.spec().seed),
                           .mix = mix};
  write_file_atomically(request.output, contact_sheet(dataset, sheet), ExitCode::environment);
}

}  // namespace

int data_show_command(const DataShowRequest& request) {
  const Job job = load_job(request.job);
  const auto dataset = data_of(request, job);
  const auto tokenizer = dataset->tokenizer();
  const auto options = monitor::Console::detect(!request.json);
  monitor::Console console(options);
  console.show("data", dataset->describe());
  if (dataset->layout().is_image()) {
    write_contact_sheet(request, job, *dataset);
    console.show("sheet", request.output);
    return 0;
  }
  const std::string begin = options.colour ? "\x1b[32m" : "[[", end = options.colour ? "\x1b[0m" : "]]";
  const bool learns_tokens = model_learns_tokens(*dataset);
  if (!request.output.empty())
    throw Error(ExitCode::usage, {.what = "--output is for images, and the data is text", .hint = "leave it out"});
  constexpr int64_t kTextsShown = 5;
  for (int64_t i = 0; i < std::min(request.limit > 0 ? request.limit : kTextsShown, dataset->size()); ++i) {
    ShownSample sample;
    try {
      sample = shown_sample(*dataset, i);
    } catch (const Error& bad) {
      if (bad.code() != ExitCode::data) throw;
      console.show("sample", fmt::format("{}  cannot be used: {}", i + 1, bad.what()));
      continue;
    }
    if (request.json) {
      std::printf("%s\n", json_of(sample).dump().c_str());
      continue;
    }
    for (const ShownField& tokens : sample) {
      const auto text = std::ranges::find_if(kTexts, [&](const TextField& one) {
        return tokens.name == one.tokens ||
               (tokens.name.starts_with(one.tokens) && std::string_view(one.tokens) == kNegativeTokens);
      });
      if (text == std::end(kTexts)) continue;
      const ShownField* targets = find(sample, text->targets);
      const std::string number = *text->title == 0 ? fmt::format("{}", i + 1) : text->title;
      console.show("sample", fmt::format("{}  {} tokens", number, tokens.numbers.size()));
      const auto* learned = targets != nullptr && learns_tokens ? &targets->numbers : nullptr;
      const std::string shown = tokenizer ? marked(tokens.numbers, learned, *tokenizer, begin, end)
                                          : fmt::format("{}", fmt::join(tokens.numbers, " "));
      std::printf("%s\n", shown.c_str());
    }
    const ShownField* target = learns_tokens ? nullptr : find(sample, kTarget);
    if (target == nullptr) target = find(sample, data::kIsGood);
    if (target != nullptr) console.show("target", target_text(*target, dataset->class_names()));
  }
  return 0;
}

}  // namespace gputrain::app
