// `gputrain predict` and `gputrain embed`: what a trained encoder says of texts.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/predict/predict.hpp"

namespace gputrain::app {
namespace {

std::unique_ptr<TextEncoder> encoder_for(const TextsRequest& request, bool gives_vectors) {
  return open_text_encoder(
      {.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer, .gives_vectors = gives_vectors});
}

}  // namespace

int predict_command(const TextsRequest& request) {
  const auto encoder = encoder_for(request, /*gives_vectors=*/false);
  const std::string lines =
      predictions_of(*encoder, {.file = request.file, .batch_size = request.batch_size}, request.json);
  if (!request.output.empty()) {
    write_file_atomically(request.output, lines, ExitCode::environment);
    return 0;
  }
  // A terminal obeys control characters, and names of classes may have any.
  const std::string shown = isatty(STDOUT_FILENO) == 1 ? printable(lines, "\n\t") : lines;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  return 0;
}

int embed_command(const TextsRequest& request) {
  const auto encoder = encoder_for(request, /*gives_vectors=*/true);
  const at::Tensor vectors = embeddings_of(*encoder, {.file = request.file, .batch_size = request.batch_size});
  write_npy(vectors, request.output);
  monitor::Console console(monitor::Console::detect(true));
  console.show("embed",
               request.output + "  " + counted(vectors.size(0), "text") + ", " + counted(vectors.size(1), "channel"));
  return 0;
}

}  // namespace gputrain::app
