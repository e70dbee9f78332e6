// Commands `gputrain predict` and `gputrain embed`: print what a trained model predicts for images and texts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "../commands.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/predict/predict.hpp"
#include "gputrain/predict/table.hpp"

namespace gputrain::app {
namespace {

trained::Source source_for(const PredictRequest& request, bool gives_vectors) {
  return trained::find(
      {.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer, .gives_vectors = gives_vectors});
}

TextsToRead texts_of(const PredictRequest& request) {
  if (request.files.size() > 1)
    throw Error(ExitCode::usage,
                {.what = "texts are read from one file, and these are " + std::to_string(request.files.size()),
                 .where = request.files[1],
                 .hint = "one file after the other"});
  return {.file = request.files.front(), .batch_size = request.batch_size};
}

ImagePredictions predictions_of_texts(const PredictRequest& request, trained::Source source) {
  if (!request.masks.empty())
    throw Error(ExitCode::usage, {.what = "--masks is for images, and this reads texts", .where = request.folder});
  if (trained::verb_for(source.signature) != "gputrain predict")
    throw Error(ExitCode::usage, {.what = "this model " + trained::what_it_gives(source.signature) +
                                          ", and predict is for classes, numbers and tags",
                                  .where = request.folder,
                                  .hint = trained::verb_for(source.signature)});
  return {.lines = predictions_of(*trained::open(std::move(source)), texts_of(request), request.json),
          .unreadable = {}};
}

ImagePredictions predictions_for(const PredictRequest& request) {
  trained::Source source = source_for(request, /*gives_vectors=*/false);
  if (source.reads_texts()) return predictions_of_texts(request, std::move(source));
  const data::Signature& seen = source.signature;
  if (!request.tokenizer.empty())
    throw Error(ExitCode::usage,
                {.what = "--tokenizer is for texts, and this model reads none", .where = request.folder});
  if (!seen.layout.is_image() || seen.layout.outputs == 0)
    throw Error(ExitCode::usage, {.what = "the model reads neither images nor texts", .where = request.folder});
  if (!source.weights.empty() && !seen.normalization)
    throw Error(ExitCode::data,
                {.what = "the run does not say how its images are normalised", .where = request.folder});
  if (source.weights.empty())
    throw Error(ExitCode::usage,
                {.what = "a published folder does not say how its images are cut and normalised, as a run does",
                 .where = request.folder,
                 .hint = "gputrain eval with a job that names it as model.pretrained"});
  if (seen.gives != Target::pixels && !request.masks.empty())
    throw Error(ExitCode::usage, {.what = "--masks is for models that label pixels, and this one labels images",
                                  .where = request.folder});
  const auto model = trained::open(std::move(source));
  const ImagesToSee images{
      .files = request.files, .batch_size = request.batch_size, .json = request.json, .masks = request.masks};
  return model->signature.gives == Target::pixels ? write_masks(*model, images) : predictions_of(*model, images);
}

bool ends_in(const std::string& file, std::initializer_list<std::string_view> endings) {
  const std::string name = lower_case(file);
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Returns what separates the cells of the table that the name of the output says; empty: it is no table.
std::optional<char> separator_of(const std::string& output) {
  if (ends_in(output, {".csv"})) return ',';
  return ends_in(output, {".tsv"}) ? std::optional('\t') : std::nullopt;
}

}  // namespace

int predict_command(const PredictRequest& given) {
  PredictRequest request = given;
  const std::optional<char> separator = separator_of(given.output);
  request.json = given.json || separator || ends_in(given.output, {".jsonl", ".json"});
  if (given.json && separator)
    throw Error(ExitCode::usage, {.what = "--json writes JSON objects, and the name is that of a table",
                                  .where = "--output " + given.output,
                                  .hint = "a name that ends in .jsonl, or no --json"});
  const auto [lines, unreadable] = [&] {
    const monitor::Console shows_what_takes_long(monitor::Console::detect(true));
    const Activity activity("predict", request.files.front());
    return predictions_for(request);
  }();
  if (!request.output.empty()) {
    write_file_atomically(request.output, separator ? table_of(lines, *separator) : lines, ExitCode::environment);
  } else {
    // Control characters are replaced, because a terminal obeys them and names of classes may have any.
    const std::string shown = isatty(STDOUT_FILENO) == 1 ? printable(lines, "\n\t") : lines;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }
  if (unreadable.size() > 1)
    for (const std::string& why : unreadable) log::warning(why);
  if (!unreadable.empty())
    throw Error(ExitCode::data, {.what = counted(std::ssize(unreadable), "image") + " cannot be read" +
                                         (unreadable.size() == 1 ? ": " + unreadable.front() : ", see above") +
                                         (lines.empty() ? "" : "; the others are done")});
  return 0;
}

int embed_command(const PredictRequest& request) {
  trained::Source source = source_for(request, /*gives_vectors=*/true);
  if (source.signature.gives != Target::pairs)
    throw Error(
        ExitCode::usage,
        {.what = "this model " + trained::what_it_gives(source.signature) + ", and embed is for vectors of texts",
         .where = request.folder,
         .hint = trained::verb_for(source.signature) +
                 "; an encoder without an adapter (model.type: bert) gives the mean of the vectors of a text's "
                 "tokens with --set model.config.head=embedder"});
  monitor::Console console(monitor::Console::detect(true));
  std::optional<Activity> activity(std::in_place, "embed", request.files.front());
  const at::Tensor vectors = embeddings_of(*trained::open(std::move(source)), texts_of(request));
  write_npy(vectors, request.output);
  activity.reset();
  console.show("embed",
               request.output + "  " + counted(vectors.size(0), "text") + ", " + counted(vectors.size(1), "channel"));
  return 0;
}

}  // namespace gputrain::app
