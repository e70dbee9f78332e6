#include "command_line.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "../library.hpp"
#include "command_line_error.hpp"
#include "completion.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/job/version.hpp"
#include "options.hpp"

namespace gputrain {
namespace {

/// Formatter of help in lines of at most 80 columns.
class HelpLines : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override { return broken(option->get_description()); }
  /// Breaks long lists of choices after commas.
  std::string make_option_opts(const CLI::Option* option) const override {
    constexpr size_t kIndent = 6;
    const std::string words = Formatter::make_option_opts(option);
    std::string text;
    size_t column = 2 + make_option_name(option, option->get_positional()).size();
    for (size_t begin = 0; begin < words.size();) {
      const size_t length = std::min(words.find(',', begin), words.size() - 1) + 1 - begin;
      if (column + length > 80) {
        text += '\n' + std::string(kIndent, ' ');
        column = kIndent;
      }
      text.append(words, begin, length);
      column += length;
      begin += length;
    }
    return text;
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_display_name(true), broken(verb->get_description()), get_column_width());
    return out.str();
  }

 private:
  std::string broken(const std::string& text) const { return wrapped(text, 80 - get_column_width(), 0); }
};

/// Refuses NaN, which a range lets through because it compares with nothing.
void refuse_nan(CLI::App& app) {
  const CLI::Validator is_number(
      [](const std::string& text) {
        const std::string lower = CLI::detail::to_lower(text);
        return lower.find("nan") == std::string::npos ? std::string() : "'" + text + "' is not a number";
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().starts_with("FLOAT")) option->check(is_number);
  }
  for (CLI::App* verb : app.get_subcommands({})) refuse_nan(*verb);
}

}  // namespace

CommandLine::CommandLine() {
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpLines>());
  app.set_help_all_flag("--help-all", "help of every subcommand");
  app.set_version_flag("--version", "gputrain " + app::version(), "Print the version and exit");
  app.footer(
      "Exit codes: 0 done; 1 a bug of ours; 2 job or command line; 3 data; 4 result\n"
      "refused; 5 checkpoint; 6 environment; 93 do not start again; 130, 143 stopped,\n"
      "saved; 138 start again, saved.");
  add_run();
  add_launch();
  add_plan();
  add_sweep();
  add_init();
  add_import();
  add_eval();
  add_generate();
  add_predict();
  add_export();
  add_fetch();
  add_readers();
  add_data();
  add_ckpt();
  add_replay();
  add_bench();
  add_watching();
  add_doctor();
  refuse_nan(app);
}

void CommandLine::add_eval() {
  auto* verb = app.add_subcommand("eval", "evaluate trained weights on the job's data, or on a suite of questions");
  verb->add_option("job", eval.job.file, "the job file (YAML), a run folder, or a checkpoint in it")
      ->required()
      ->check(not_empty);
  add_set(*verb, eval.job.set);
  add_output_dir(*verb, eval.job);
  auto* weights =
      verb->add_option("--weights", eval.weights, "model.safetensors, or a run folder; default: the job's run folder")
          ->check(not_empty);
  auto* on = verb->add_option("--on", eval.on, "which data: train, val or test")
                 ->check(CLI::IsMember({"train", "val", "test"}));
  verb->add_flag("--json", eval.json, "print the metrics as JSON");
  auto* suite = verb->add_option("--suite", eval.suite.file,
                                 "a .jsonl file of questions and texts for a language model; instead of the job then "
                                 "also the folder of a published model, or its name on the Hub")
                    ->check(not_empty)
                    ->excludes(weights)
                    ->excludes(on);
  verb->add_option("--samples", eval.suite.samples, "with --suite: write what the model made of each line")
      ->check(not_empty)
      ->needs(suite);
  verb->add_option("--batch-size", eval.suite.batch_size, "with --suite: texts side by side (default: 32)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(suite);
  verb->footer(
      "Lines of a suite, each perhaps with \"task\", by which results are grouped:\n"
      "  {\"context\": \"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}\n"
      "    acc, acc_norm (by characters), acc_bytes; \"delimiter\": \" \" is between them\n"
      "  {\"text\": \"...\"}  bits_per_byte, byte_perplexity, word_perplexity\n"
      "  {\"prompt\": \"...\", \"answer\": \"...\"}  exact_match of what the model writes;\n"
      "    \"stop\": [\"\\n\\n\"] ends it, or \"max_new_tokens\": 256");
  verb->callback([this] { action = [this] { return app::library().eval(eval); }; });
}

void CommandLine::add_export() {
  auto* verb = app.add_subcommand("export", "write a trained model for other programs, or a job for a scheduler");
  verb->add_option("folder", exported.folder,
                   "a run folder, a checkpoint in it, a published model's folder, or its name on the Hub; for a "
                   "scheduler: the job file (YAML)")
      ->required()
      ->check(not_empty);
  verb->add_option("out,--output", exported.out,
                   "the folder to write; with gguf and onnx: the file; for a scheduler: the file, or stdout without it")
      ->check(not_empty);
  verb->add_option("--format", exported.format,
                   "hf: for transformers; sentence-transformers; gguf: for llama.cpp; adapter: for PEFT; onnx: for "
                   "ONNX Runtime; "
                   "timm, torchvision: weights of a ViT or ConvNeXt under their names; "
                   "slurm, k8s, jobset, trainjob, sky, dstack, ansible, compose: what runs the job there")
      ->check(CLI::IsMember({"hf", "sentence-transformers", "gguf", "adapter", "onnx", "timm", "torchvision", "slurm",
                             "k8s", "jobset", "trainjob", "sky", "dstack", "ansible", "compose"}));
  verb->add_option(
          "--dtype", exported.dtype,
          "f32, f16, bf16 or, in gguf, q8_0; default: what the run computed in, but f32 in timm and torchvision")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  verb->add_flag("--merge", exported.merge, "the model with its adapter merged; in gguf and onnx it always is");
  auto* base =
      verb->add_option(
              "--base", exported.base,
              "with model.quantize, what an adapter is merged into: original: the weights that were quantised; "
              "quantised: their rounded values, with which it was trained; default: original, if at hand")
          ->check(CLI::IsMember({"original", "quantised"}));
  add_set(*verb, exported.set);
  verb->add_option("--tokenizer", exported.tokenizer, "a published one, instead of the folder's own")->check(not_empty);
  verb->add_option("--image", exported.image, "for a scheduler with containers: their image")->check(not_empty);
  verb->add_option("--volume", exported.volumes,
                   "... what outlives a container, as the scheduler calls it, and its place there (repeatable)")
      ->type_name("NAME:/path")
      ->allow_extra_args(false)
      ->check(not_empty);
  verb->footer(
      "Files of schedulers start one `gputrain launch` on each of launch.nnodes nodes\n"
      "with launch.nproc_per_node GPUs. Their comments say what is to be filled in.");
  verb->callback([this, base] {
    constexpr std::string_view kModels[] = {"",     "hf",         "sentence-transformers", "gguf", "adapter", "onnx",
                                            "timm", "torchvision"};
    if (exported.out.empty() && std::ranges::find(kModels, exported.format) != std::end(kModels))
      throw CLI::RequiredError("out");
    exported.has_base = base->count() > 0;
    action = [this] { return app::library().export_model(exported); };
  });
}

void CommandLine::add_fetch() {
  auto* verb = app.add_subcommand("fetch", "fetch a published model from the Hugging Face Hub into its cache");
  verb->add_option("name", fetch.name, "ORGANIZATION/MODEL, as model.pretrained then names it")
      ->required()
      ->check(not_empty);
  verb->add_option("--revision", fetch.revision, "a branch, tag or commit (default: main)")->check(not_empty);
  verb->add_flag("--no-weights", fetch.no_weights, "only what describes the model, for `plan` and dry runs");
  verb->footer(
      "Fetches the weights in safetensors and what describes the model. What is here\n"
      "is not fetched again; an interrupted fetch is continued by the next one.\n"
      "Environment: HF_TOKEN for private models and licences; HF_HOME or HF_HUB_CACHE,\n"
      "where the cache lies; HF_HUB_OFFLINE, fetches nothing; HF_ENDPOINT, another\n"
      "server; https_proxy.");
  verb->callback([this] { action = [this] { return app::library().fetch(fetch); }; });
}

void CommandLine::add_generate() {
  auto* verb = app.add_subcommand("generate", "continue prompts with a trained language model");
  verb->add_option("folder", generate.folder,
                   "a run folder, a checkpoint in it, a published model's folder, or its name on the Hub")
      ->required()
      ->check(not_empty);
  add_set(*verb, generate.set);
  verb->add_option("--tokenizer", generate.tokenizer, "a published one, instead of the folder's own")->check(not_empty);
  auto* prompt = verb->add_option("--prompt", generate.prompt, "the text to continue; default: each line of stdin");
  verb->add_option("--prompts", generate.prompts, "a file: a prompt a line; .jsonl: \"prompt\" of each line")
      ->check(not_empty)
      ->excludes(prompt);
  auto* chat = verb->add_flag("--chat", generate.chat,
                              "answer: prompts are what a user says, written as the model's chat template wants");
  verb->add_option("--system", generate.system, "with --chat: the system's message")->needs(chat);
  verb->add_flag("--json", generate.json, "print a JSON object for each prompt");
  verb->add_option("--max-new-tokens", generate.max_new_tokens, "write at most so many tokens (default: 256)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  verb->add_option("--stop", generate.stop, "end a text before this one, or at this special token (repeatable)")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->check(not_empty);
  verb->add_option("--temperature", generate.temperature,
                   "0: always the most likely token (default); 1: the model's probabilities")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--top-k", generate.top_k, "draw only from the k most likely tokens")->check(at_least(1));
  verb->add_option("--top-p", generate.top_p, "... from the most likely ones that together have this probability")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--min-p", generate.min_p, "... from those with this part of the highest probability")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--repetition-penalty", generate.repetition_penalty,
                   "above 1: tokens of the text become less likely")
      ->check(CLI::PositiveNumber);
  verb->add_option("--seed", generate.seed, "of what is drawn (default: 0)")->check(at_least(0));
  verb->add_option("--batch-size", generate.batch_size, "prompts side by side (default: 8)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->footer(
      "Text goes to stdout, that of one prompt as it comes; the number of tokens and\n"
      "their rate to stderr. --json: prompt_tokens, tokens, text, and finish: \"stop\"\n"
      "at a token with which the model ends texts or at --stop, \"length\" at the limit.");
  verb->callback([this] { action = [this] { return app::library().generate(generate); }; });
}

void CommandLine::add_readers() {
  auto* validate = app.add_subcommand("validate", "check a job file, all of it, without touching data or devices");
  add_job(*validate, job);
  validate->add_flag("--json", json, "print the problems as JSON");
  validate->callback([this] { action = [this] { return app::library().validate(job, json); }; });

  auto* config = app.add_subcommand("config", "print the resolved job, defaults included");
  add_job(*config, job);
  config->add_flag("--origin", origin, "say which file, line or option set each key");
  config->callback([this] { action = [this] { return app::library().config(job, origin); }; });

  auto* schema = app.add_subcommand("schema", "print the JSON Schema of a job file, for editors");
  add_plugins(*schema, plugins);
  schema->callback([this] { action = [this] { return app::library().schema(plugins); }; });

  auto* list = app.add_subcommand("list", "list models, datasets, optimizers, ...");
  list->add_option("kind", kind, "what to list; nothing: everything");
  add_plugins(*list, plugins);
  list->callback([this] { action = [this] { return app::library().list(kind, plugins); }; });

  auto* describe = app.add_subcommand("describe", "explain the options of the job or of one entry");
  describe->add_option("kind", kind,
                       "job, a group or key of it (train, optimizer.lr), or model, dataset, optimizer, ...");
  describe->add_option("name", name, "the entry, as `gputrain list` names it");
  describe
      ->add_option("--markdown", markdown,
                   "print a page of the folder configs instead: keys, the default, or compatibility")
      ->expected(0, 1)
      ->default_str("keys")
      ->check(CLI::IsMember({"keys", "compatibility"}));
  add_plugins(*describe, plugins);
  describe->callback([this] { action = [this] { return app::library().describe(kind, name, markdown, plugins); }; });

  auto* completion = app.add_subcommand("completion", "print what makes a shell complete command lines of gputrain");
  completion->add_option("shell", name, "bash, zsh or fish; the first line says where it goes")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([this] {
    action = [this] {
      std::fputs(app::completion_script(name).c_str(), stdout);
      return 0;
    };
  });

  auto* version = app.add_subcommand("version", "print versions of gputrain and what it was built with");
  version->callback([this] { action = [] { return app::library().version(); }; });
}

void CommandLine::add_data() {
  auto* data = app.add_subcommand("data", "prepare data, and check the data of a run");
  data->require_subcommand(1);
  auto* audit = data->add_subcommand("audit", "prove from a run's ledger that every sample was used once per epoch");
  audit->add_option("run", name, "the run folder")->required()->check(not_empty);
  audit->add_flag("--json", json, "print the result as JSON");
  audit->callback([this] { action = [this] { return app::library().audit(name, json); }; });

  auto* tokenizer = data->add_subcommand("tokenize", "turn text into a token file, for format: tokens");
  tokenizer
      ->add_option(
          "files", tokenize.files,
          "text, plain, .gz or .zst; .jsonl, .json, .csv and others with records: a document in \"text\" of each")
      ->required()
      ->check(not_empty);
  tokenizer->add_option("--tokenizer", tokenize.tokenizer, "the folder of a published model, or its tokenizer.json")
      ->required()
      ->check(not_empty);
  tokenizer->add_option("--output", tokenize.output, "the token file")->required()->check(not_empty);
  tokenizer->add_option("--eos", tokenize.end, "the token after each document, or none; default: the model's own");
  tokenizer->callback([this] { action = [this] { return app::library().tokenize(tokenize); }; });

  auto* show = data->add_subcommand(
      "show", "texts or images as the model gets them: texts with what is learned marked, images augmented");
  add_job(*show, data_show.job);
  show->add_option("--on", data_show.on, "which data: train, val or test")
      ->check(CLI::IsMember({"train", "val", "test"}));
  show->add_option("--limit", data_show.limit, "number of samples (default: 5 texts, 24 images)")->check(at_least(1));
  show->add_option("--output", data_show.output, "images: the page (HTML) to write")->check(not_empty);
  show->add_flag("--json", data_show.json, "one object a line: tokens, and the target of each (-100: not learned)");
  show->callback([this] { action = [this] { return app::library().data_show(data_show); }; });
}

std::optional<int> CommandLine::read(const std::vector<std::string>& words) {
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 expects reverse order
    app.parse(reversed);
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& failure) {
    throw app::command_line_error(app, failure, words);
  }
}

int CommandLine::complete(const std::vector<std::string>& words) const {
  const auto names = [](const std::string& of_kind) { return app::library().names(of_kind); };
  for (const std::string& found : app::completions(app, words, names)) std::printf("%s\n", found.c_str());
  return 0;
}

}  // namespace gputrain
