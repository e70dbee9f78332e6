// Options of reading images and text in any format, `data.image` and `data.text`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/data/augmentation.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::data {

/// One number for height and width, or both.
using ImageSides = config::Auto<config::OneOrMore<int64_t>>;

struct EvalImageOptions {
  config::Auto<int64_t> resize;
  ImageSides crop;
  config::Auto<std::string> interpolation;

  static void describe(config::Description<EvalImageOptions>& d) {
    d.summary("how images are fitted for validation and test");
    d.key("resize", &EvalImageOptions::resize,
          "first resize the shorter side to this; auto: so that the image covers `size`, or 256/224 of it with "
          "random_resized_crop")
        .range(1, 8192)
        .unit("pixels");
    d.key("crop", &EvalImageOptions::crop, "then crop this much from the middle, as `size`; auto: `size`")
        .elements(1, 2)
        .range(1, 8192)
        .unit("pixels");
    d.key("interpolation", &EvalImageOptions::interpolation,
          "filter of the resizing; auto: that of training, and bilinear where that is auto or random")
        .choices({"bilinear", "bicubic"});
  }
};

/// Names of the columns of lists of images.
struct ImageColumns {
  std::optional<std::string> image;
  std::optional<config::OneOrMore<std::string>> label;

  static void describe(config::Description<ImageColumns>& d) {
    d.summary("names of columns in jsonl, csv and parquet that list images, where they are not the usual ones");
    d.key("image", &ImageColumns::image,
          "the path of an image, below the folder of the list or the one above it, or absolute; null: image");
    d.key("label", &ImageColumns::label,
          "the class of an image, or a column of 0 and 1 for each class; or, for regression, the columns of its "
          "numbers; "
          "null: label")
        .aliases({"columns.labels", "columns.target", "columns.targets"});
  }
};

/// Height and width of images.
struct ImageExtent {
  int64_t height = 0, width = 0;
};
ImageExtent extent_of(const ImageSides& sides, const ImageExtent& otherwise);

struct ImageOptions {
  ImageSides size;
  config::Auto<int64_t> channels;
  config::Auto<std::string> interpolation;
  AugmentOptions augment;
  EvalImageOptions eval;
  std::optional<std::vector<double>> mean, std;
  ImageColumns columns;

  static void check(const ImageOptions& options, config::SpecIssues& issues);
  static void describe(config::Description<ImageOptions>& d) {
    d.summary("how images become the model's input");
    d.key("size", &ImageOptions::size,
          "height and width of the input, or both: [height, width]; auto: the size of the images, if all have the same")
        .elements(1, 2)
        .range(1, 8192)
        .unit("pixels")
        .aliases({"image_size", "img_size", "input_size", "data.train.resize", "data.image.resize"});
    d.key("channels", &ImageOptions::channels, "1: grey; 3: RGB; auto: 3, or 1 if the format stores grey").range(1, 3);
    d.key("interpolation", &ImageOptions::interpolation,
          "filter of the resizing in training, with antialiasing as in Pillow, and of the rotations and shears of "
          "timm's "
          "auto_augment; random: bilinear or bicubic, drawn for each image. auto: images are resized bilinearly, and "
          "the "
          "operations draw")
        .choices({"bilinear", "bicubic", "random"})
        .aliases({"train_interpolation"});
    d.key("augment", &ImageOptions::augment, "random changes of training images");
    d.key("eval", &ImageOptions::eval, "how images are fitted for validation and test");
    d.key("mean", &ImageOptions::mean,
          "mean of each channel (values 0 to 1), subtracted; null: measured (idx), or ImageNet's (photographs)")
        .elements(1, 3)
        .range(0, 1);
    d.key("std", &ImageOptions::std, "standard deviation of each channel, divided by; null: as for mean")
        .elements(1, 3)
        .above(0)
        .range(0, 1);
    d.key("columns", &ImageOptions::columns, "names of columns of lists of images, where they are not the usual ones");
    d.check([](const ImageOptions& options, config::SpecIssues& issues) { check(options, issues); });
  }
};

/// Names of the columns of records, where they are not the usual ones.
struct ColumnNames {
  std::optional<std::string> text, text_pair, negative, words, tags, prompt, completion, chosen, rejected, messages;
  std::optional<config::OneOrMore<std::string>> label;

  /// Returns the column of labels, if any. Throws Error(usage) if the job names several.
  std::optional<std::string> one_label() const;

  static void describe(config::Description<ColumnNames>& d) {
    d.summary("names of columns in jsonl, csv and parquet, where they are not the usual ones");
    d.key("text", &ColumnNames::text, "plain text to learn; null: text, and for an embedder anchor or sentence1");
    d.key("text_pair", &ColumnNames::text_pair,
          "a second text, for a model that reads two; null: text_pair, if there is such a column, and for an embedder "
          "positive or sentence2");
    d.key("negative", &ColumnNames::negative,
          "for an embedder, a text that is not like the first; null: negative, if there is such a column");
    d.key("label", &ColumnNames::label,
          "the class of a text, or a number; or, for classes, a column of 0 and 1 for each class; null: label, and for "
          "an "
          "embedder score")
        .aliases({"columns.labels", "columns.target"});
    d.key("words", &ColumnNames::words, "a list of words, each with a tag; null: tokens");
    d.key("tags", &ColumnNames::tags, "a list of the tags of these words; null: tags").aliases({"ner_tags"});
    d.key("prompt", &ColumnNames::prompt, "what stands before the completion; null: prompt");
    d.key("completion", &ColumnNames::completion, "what is learned after the prompt; null: completion");
    d.key("chosen", &ColumnNames::chosen, "the better of two answers to the prompt; null: chosen");
    d.key("rejected", &ColumnNames::rejected, "the worse one; null: rejected");
    d.key("messages", &ColumnNames::messages, "a conversation; null: messages, or conversations")
        .aliases({"field_messages", "messages_field"});
  }
};

/// Choice of the tokens that a mask hides, for models that guess them (Devlin et al., arXiv:1810.04805, section 3.1).
struct MaskingOptions {
  double fraction = 0.15;
  bool whole_words = false;

  static void describe(config::Description<MaskingOptions>& d) {
    d.summary("tokens that are hidden from a model that guesses them; another choice in every epoch");
    d.key("fraction", &MaskingOptions::fraction,
          "share of the tokens to be guessed: 80 % of them become the mask, 10 % another token, 10 % stay")
        .range(0, 1)
        .above(0)
        .aliases({"mlm_probability"});
    d.key("whole_words", &MaskingOptions::whole_words, "all tokens of a word are chosen together");
  }
};

struct TextOptions {
  config::Choice tokenizer{"characters"};
  config::Auto<int64_t> max_length;
  bool packing = false;
  std::optional<std::string> loss_on;
  std::optional<std::vector<std::string>> roles_to_train;
  std::string train_on_eos = "turn";
  std::optional<std::string> chat_template, chat_template_kwargs;
  ColumnNames columns;
  MaskingOptions masking;

  static void describe(config::Description<TextOptions>& d) {
    d.summary("how text becomes the model's input");
    d.choice("tokenizer", &TextOptions::tokenizer, tokenizers::catalog(), "how text becomes tokens");
    d.key("max_length", &TextOptions::max_length, "tokens in a sample; auto: the most that the model takes")
        .range(1, 1 << 24)
        .unit("tokens")
        .aliases({"cutoff_len", "max_seq_len", "max_seq_length", "seq_length", "seq_len", "sequence_length"});
    d.key(
         "packing", &TextOptions::packing,
         "of records (jsonl, csv, tsv, parquet): several texts follow each other in a sample of max_length tokens, and "
         "the tokens of a text attend to that text alone. false: a sample is one text, padded to the longest of its "
         "micro-batch")
        .aliases({"sample_packing", "pack"});
    d.key("loss_on", &TextOptions::loss_on,
          "what is learned of a record: all of it, its completion, or what the assistant says; null: the completion, "
          "the assistant's messages, or all of a plain text")
        .choices({"all", "completion", "assistant"})
        .aliases("train_on_inputs", [](const std::string& value) { return value == "true" ? "all" : "assistant"; })
        .aliases("completion_only_loss",
                 [](const std::string& value) { return value == "true" ? "completion" : "all"; })
        .aliases("assistant_only_loss", [](const std::string& value) { return value == "true" ? "assistant" : "all"; });
    d.key("roles_to_train", &TextOptions::roles_to_train,
          "whose messages of a conversation are learned; null: the assistant's");
    d.key("train_on_eos", &TextOptions::train_on_eos,
          "which marks that end turns of a conversation are learned: those of learned turns, that of the last one, "
          "those "
          "of all turns, or none")
        .choices({"turn", "last", "all", "none"});
    d.key("chat_template_kwargs", &TextOptions::chat_template_kwargs,
          "variables of the chat template as a JSON object, such as '{\"enable_thinking\": false}'; a record's column "
          "chat_template_kwargs goes before it");
    d.key("chat_template", &TextOptions::chat_template,
          "a file with a Jinja template, or the name of one: alpaca, chatml, llama3, plain; null: that of the "
          "published tokenizer's folder")
        .path();
    d.key("columns", &TextOptions::columns, "names of columns, where they are not the usual ones");
    d.key("masking", &TextOptions::masking, "tokens that are hidden from a model that guesses them");
  }
};

}  // namespace gputrain::data
