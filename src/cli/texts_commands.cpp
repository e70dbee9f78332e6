// `gputrain predict` and `gputrain embed`: what a trained model says of images and texts.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/predict/predict.hpp"
#include "gputrain/setup/signature.hpp"

namespace gputrain::app {
namespace {

std::unique_ptr<TextEncoder> encoder_for(const TextsRequest& request, bool gives_vectors) {
  return open_text_encoder(
      {.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer, .gives_vectors = gives_vectors});
}

TextsToRead texts_of(const TextsRequest& request) {
  if (request.files.size() > 1)
    throw Error(ExitCode::usage,
                {.what = "texts are read from one file, and these are " + std::to_string(request.files.size()),
                 .where = request.files[1],
                 .hint = "one file after the other"});
  return {.file = request.files.front(), .batch_size = request.batch_size};
}

ImagePredictions predictions_for(const TextsRequest& request) {
  if (kind_of(request.folder) != ModelKind::other) {
    if (!request.masks.empty())
      throw Error(ExitCode::usage, {.what = "--masks is for images, and this reads texts", .where = request.folder});
    return {.lines = predictions_of(*encoder_for(request, /*gives_vectors=*/false), texts_of(request), request.json),
            .unreadable = {}};
  }
  if (!request.tokenizer.empty())
    throw Error(ExitCode::usage,
                {.what = "--tokenizer is for texts, and the run trains on images", .where = request.folder});
  const auto model = open_image_model({.folder = request.folder, .set = request.set, .files = request.files});
  if (model->labels_pixels)
    return write_masks(*model, {.folder = request.masks, .batch_size = request.batch_size, .json = request.json});
  if (!request.masks.empty())
    throw Error(ExitCode::usage, {.what = "--masks is for models that label pixels, and this one labels images",
                                  .where = request.folder});
  return predictions_of(*model, request.batch_size, request.json);
}

}  // namespace

int predict_command(const TextsRequest& request) {
  const auto [lines, unreadable] = predictions_for(request);
  if (!request.output.empty()) {
    write_file_atomically(request.output, lines, ExitCode::environment);
  } else {
    // A terminal obeys control characters, and names of classes may have any.
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

int embed_command(const TextsRequest& request) {
  const auto encoder = encoder_for(request, /*gives_vectors=*/true);
  const at::Tensor vectors = embeddings_of(*encoder, texts_of(request));
  write_npy(vectors, request.output);
  monitor::Console console(monitor::Console::detect(true));
  console.show("embed",
               request.output + "  " + counted(vectors.size(0), "text") + ", " + counted(vectors.size(1), "channel"));
  return 0;
}

}  // namespace gputrain::app
