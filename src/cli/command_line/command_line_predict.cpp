// Verbs for trained classifiers of images and encoders of texts.
#include <string>

#include "../library.hpp"
#include "command_line.hpp"
#include "options.hpp"

namespace gputrain {

void CommandLine::add_predict() {
  const auto add = [this](const char* verb_name, const char* what, const char* files) {
    auto* verb = app.add_subcommand(verb_name, what);
    verb->add_option("folder", predict.folder,
                     "a run folder, a checkpoint in it, a published model's folder, or its name on the Hub")
        ->required()
        ->check(not_empty);
    verb->add_option("files", predict.files, files)->required()->check(not_empty);
    add_set(*verb, predict.set);
    verb->add_option("--tokenizer", predict.tokenizer, "a published one, instead of the folder's own")
        ->check(not_empty);
    verb->add_option("--batch-size", predict.batch_size, "texts or images side by side (default: 32)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    return verb;
  };
  const std::string one_file = "texts: csv, tsv, jsonl, parquet or conll by its extension; else one a line";
  auto* verb = add("predict", "say classes of images or pixels, or classes, numbers or tags of texts",
                   ("images and folders of images; or " + one_file).c_str());
  verb->add_flag("--json", predict.json, "print a JSON object for each image or text");
  verb->add_option("--output", predict.output,
                   "the file to write: a table with names if it ends in .csv or .tsv, JSON objects if in .jsonl; "
                   "default: stdout")
      ->check(not_empty);
  verb->add_option("--masks", predict.masks, "the folder to write masks to, for a model that labels pixels")
      ->check(not_empty);
  verb->footer(
      "Images: a line for each, with the best classes and their probabilities.\n"
      "Of a model that labels pixels: a line with the shares of the classes; with\n"
      "--masks also a mask, a PNG as large as the image, whose numbers are the classes.\n"
      "Texts: a line for each, in the order of the file: the class and its probability;\n"
      "of several classes those above one half; a number; or a line for each word with\n"
      "its tag, and an empty one behind each text. Columns are those of the run's job.");
  verb->callback([this] { action = [this] { return app::library().predict(predict); }; });
  verb = add("embed", "write vectors of texts, with a trained encoder", one_file.c_str());
  verb->add_option("--output", predict.output, "the file to write: float32 [texts, channels] as NumPy's .npy")
      ->required()
      ->check(not_empty);
  verb->callback([this] { action = [this] { return app::library().embed(predict); }; });
}

}  // namespace gputrain
