// Jobs for a text and for records of texts.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/models/published.hpp"
#include "jobs.hpp"
#include "recipes.hpp"

namespace gputrain::app {
namespace {

using Kind = records::FoundRecords::Kind;

/// Throws Error(usage) unless the base is a model of this type.
const BaseModel& needed_base(const Begin& begin, const records::FoundRecords& records, const std::string& type) {
  const bool is_decoder = type == "gpt";
  const std::string example = is_decoder ? "Qwen/Qwen3-0.6B" : "sentence-transformers/all-MiniLM-L6-v2";
  if (!begin.base)
    throw Error(ExitCode::usage, {.what = "these are " + in_words(records.kind) + ", from which a published " +
                                          (is_decoder ? "language model" : "encoder") + " learns" +
                                          (records.columns.empty() ? "" : " (" + records.columns + ")"),
                                  .where = "--model",
                                  .hint = "gputrain fetch " + example + ", then --model " + example + ", or a folder"});
  if (begin.base->type == type) return *begin.base;
  throw Error(
      ExitCode::usage,
      {.what = "is a model of type " + begin.base->type + ", but " + in_words(records.kind) + " need " + type,
       .where = "--model " + begin.base->name,
       .hint = is_decoder ? "name a language model, such as " + example +
                                "; an encoder learns from texts with a label, words with tags, or pairs: anchor "
                                "and positive, query and document, question and answer"
                          : "name an encoder, such as " + example});
}

/// Returns the text of a question in the section eval: what the model answers while it learns.
std::string asked(const std::string& question) {
  if (question.empty()) return "{interval: 1ep}";
  return "\n  interval: 1ep\n  sample: {messages: [" + in_quotes(question) +
         "], temperature: 0, max_new_tokens: 200, interval: 1ep}";
}

bool has_template(const BaseModel& base) {
  try {
    chat::read_chat_template(base.folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string columns_of(const records::FoundRecords& records) {
  return records.columns.empty() ? "" : "columns: {" + records.columns + "}";
}

/// LoRA beside a published language model, by recipes.
JobText adapter_job(const FoundData& found, const Begin& begin) {
  const records::FoundRecords& records = *found.records;
  const BaseModel& base = needed_base(begin, records, "gpt");
  const bool is_answers = records.kind == Kind::preferences || records.kind == Kind::ratings;
  JobText job(recipe_named(is_answers ? "dpo" : begin.quantize.empty() ? "finetune_lora" : "finetune_qlora").text);
  job.replace("model", "\"${env:MODEL:-model}\"", in_quotes(base.name));
  const std::string packing = "quantize: {type: " + begin.quantize + "}";
  if (!begin.quantize.empty()) {
    if (is_answers) {
      job.replace("model", "  adapter:", "  " + packing + "\n  adapter:");
      job.replace("train", "}", ", activation_checkpointing: block}");
    } else {
      job.replace("model", "quantize: {type: nf4}", packing);
    }
  }
  if (records.kind == Kind::ratings) job.set("task", "{type: kto}");
  std::string text = job.line_of("data", "text");
  const std::string said = ", loss_on: assistant";
  const size_t at = text.find(said);
  if (at != std::string::npos && records.kind != Kind::conversations) text.erase(at, said.size());
  if (records.kind == Kind::conversations && !has_template(base)) text = with_key(text, "chat_template: chatml");
  job.set("data", data_section(found, "", with_key(text, columns_of(records))));
  return records.kind == Kind::conversations ? job.set("eval", asked(records.question)) : job;
}

/// An embedder, by pairs.
JobText embedder_job(const FoundData& found, const Begin& begin) {
  const BaseModel& base = needed_base(begin, *found.records, "bert");
  JobText job(recipe_named("embed").text);
  job.replace("model", "\"${env:MODEL:-model}\"", in_quotes(base.name));
  if (found.records->kind == Kind::scored_pairs) job.set("task", "{type: similarity}");
  return job.set("data", data_section(found, "", with_key(job.line_of("data", "text"), columns_of(*found.records))));
}

/// A classifier or a tagger: a small encoder from nothing, or a published model with another head.
JobText label_job(const FoundData& found, const Begin& begin) {
  const Kind kind = found.records->kind;
  const std::string head = kind == Kind::tags ? "tagger" : "classifier";
  JobText job(recipe_named("bert_sst2").text);
  std::string text = "{tokenizer: words, max_length: 128}";
  if (begin.base) {
    if (kind == Kind::tags) needed_base(begin, *found.records, "bert");
    if (begin.base->type != "bert") needed_base(begin, *found.records, "gpt");
    job.set("model", "{type: " + begin.base->type + ", pretrained: " + in_quotes(begin.base->name) +
                         ", config: {head: " + head + "}}");
    job.replace("optimizer", "5e-4", "2e-5");
    text = "{tokenizer: pretrained, max_length: 128}";
  } else {
    job.replace("model", "head: classifier", "head: " + head);
  }
  if (kind == Kind::class_sets) job.set("task", "{type: multi_label_classification}");
  if (kind == Kind::numbers) job.set("task", "{type: regression}");
  if (kind != Kind::classes) job.remove("checkpoint");
  return job.set("data", data_section(found, "", with_key(text, columns_of(*found.records))));
}

constexpr const char* kGpuModel = "{n_layer: 6, n_head: 6, n_embd: 384, block_size: 256, dropout: 0.2}";

/// A small model of characters, from nothing; smaller without a GPU. nanoGPT has both.
JobText character_job(const FoundData& found, bool has_gpu) {
  const std::string columns = found.records ? columns_of(*found.records) : "",
                    begins = found.records ? found.records->question : "";  // records may have no line ends
  const char* small = "{n_layer: 4, n_head: 4, n_embd: 128, block_size: 64}";
  return JobText()
      .set("model", std::string("{type: gpt, config: ") + (has_gpu ? kGpuModel : small) + "}")
      .set("data", data_section(found, "", columns.empty() ? "" : "{" + columns + "}"))
      .set("train", std::string("{max_steps: ") +
                        (has_gpu ? "5000, global_batch_size: 64" : "2000, global_batch_size: 12") +
                        ", max_grad_norm: 1.0}")
      .set("optimizer",
           std::string("{type: adamw, lr: ") + (has_gpu ? "1e-3" : "2e-3") + ", betas: [0.9, 0.99], weight_decay: 0.1}")
      .set("lr_scheduler",
           std::string("{type: cosine, warmup: ") + (has_gpu ? "2%, min_lr: 1e-4}" : "5%, min_lr: 2e-4}"))
      .set("eval", "{interval: 5%, sample: {" + (begins.empty() ? "" : "prompt: " + in_quotes(begins) + ", ") +
                       "max_new_tokens: 300, interval: 10%}}");
}

bool is_of_characters(const FoundData& found, const Begin& begin) {
  return !begin.base && (found.is_text || (found.records && found.records->kind == Kind::texts));
}

}  // namespace

BaseModel base_model(const std::string& name) {
  const std::filesystem::path folder = hub::pretrained_path(name);
  const std::filesystem::path file = folder / "config.json";
  const auto config = parse_json_file(file);
  if (!config.is_object())
    throw Error(ExitCode::data, {.what = "there is no config.json, which says what model it is",
                                 .where = folder.string(),
                                 .hint = "a folder as transformers writes it"});
  if (!models::is_timm_config(config))
    return {.name = name, .folder = folder, .type = models::published_model(config, file.string()).type};
  const std::string type = models::timm_model(config, file.string()).type;
  if (!type.empty()) return {.name = name, .folder = folder, .type = type};
  throw Error(ExitCode::usage,
              {.what = "is timm's " + json_value(config, "architecture", "") + ", which is not among the models here",
               .where = file.string(),
               .hint = "gputrain list models"});
}

JobText text_job(const FoundData& found, const Begin& begin) {
  if (!begin.quantize.empty() && !begin.base)
    throw Error(ExitCode::usage, {.what = "is for a published model", .where = "--quantize", .hint = "with --model"});
  if (!found.records || (found.records->kind == Kind::texts && !begin.base)) {
    if (!begin.base) return character_job(found, begin.has_gpu);
    throw Error(ExitCode::usage, {.what = "a published model learns from records, not from a text as a whole",
                                  .where = "--model",
                                  .hint = "write the text as JSON lines, {\"text\": ...} for each part"});
  }
  switch (found.records->kind) {
    case Kind::pairs:
    case Kind::scored_pairs:
      break;
    case Kind::classes:
    case Kind::class_sets:
    case Kind::numbers:
    case Kind::tags:
      if (begin.quantize.empty()) return label_job(found, begin);
      break;
    default:
      return adapter_job(found, begin);
  }
  if (!begin.quantize.empty())
    throw Error(ExitCode::usage, {.what = in_words(found.records->kind) + " are learned by all weights",
                                  .where = "--quantize",
                                  .hint = "leave it out"});
  return embedder_job(found, begin);
}

std::vector<std::string> notes_on(const FoundData& found, const Begin& begin) {
  std::vector<std::string> notes = found.notes;
  if (is_of_characters(found, begin)) {
    if (!begin.has_gpu)
      notes.push_back(std::string("there is no GPU here, so the model is small; with one, model.config: ") + kGpuModel +
                      ", global_batch_size: 64, max_steps: 5000 and lr: 1e-3 learn more");
    if (found.records)
      notes.push_back(
          "a model learns these texts from nothing, character by character; --model with a published "
          "language model teaches that");
  }
  if (!found.records) return notes;
  const Kind kind = found.records->kind;
  if ((kind == Kind::preferences || kind == Kind::ratings) && !found.records->is_chat)
    notes.push_back(std::string("prompts and answers are plain texts, so no chat template is used") +
                    (begin.base && has_template(*begin.base)
                         ? ", though the model has one: lists of messages would be written by it"
                         : ""));
  if (found.records->max_bad_fraction > 0)
    notes.push_back("some records have no difference between their answers: max_bad_fraction skips them");
  return notes;
}

bool fit_to_few(JobText& job, const FoundData& found, int64_t samples) {
  constexpr int64_t kFewestSteps = 100, kFewestInEpoch = 20, kMostEpochs = 10;
  const int64_t batch = job.number_of("train", "global_batch_size"), epochs = job.number_of("train", "max_epochs");
  if (batch == 0 || epochs == 0 || samples / batch * epochs >= kFewestSteps) return false;
  // An embedder tells each text from the others of its batch.
  const int64_t least = found.records->kind == Kind::pairs ? 8 : 4;
  int64_t smaller = batch;
  while (smaller > least && samples / smaller < kFewestInEpoch) smaller /= 2;
  const int64_t steps = std::max<int64_t>(1, samples / smaller);
  const int64_t more = std::clamp((kFewestSteps + steps - 1) / steps, epochs, std::max(epochs, kMostEpochs));
  job.replace("train", fmt::format("global_batch_size: {}", batch), fmt::format("global_batch_size: {}", smaller));
  job.replace("train", fmt::format("max_epochs: {}", epochs), fmt::format("max_epochs: {}", more));
  return true;
}

}  // namespace gputrain::app
