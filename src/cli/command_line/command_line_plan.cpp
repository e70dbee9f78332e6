#include "../library.hpp"
#include "command_line.hpp"
#include "options.hpp"

namespace gputrain {

void CommandLine::add_plan() {
  auto* verb = app.add_subcommand(
      "plan", "predict whether a job fits GPUs, how to share it among them, how long it takes and what it costs");
  add_job(*verb, plan.job);
  verb->add_option("--world-size", plan.world_size, "ranks, one for each GPU (default: 1)")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--device-memory", plan.device_memory,
                   "memory of each GPU, such as 80GiB (default: of the named GPUs, or of a GPU here)")
      ->check(not_empty);
  verb->add_option(
          "--gpus", plan.gpus,
          "kinds of GPUs, such as h100 or 4090,l40s,a100-80, whose published figures count; several, or one with "
          "the dollars of an hour, as 4090=0.40,h100=2.50, are compared")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty);
  verb->add_option("--gpus-per-host", plan.rates.gpus_per_host, "ranks on each host (default: 8)")->check(at_least(1));
  verb->add_option("--bench-train", plan.rates.bench_train,
                   "measured steps: what `bench train --json` printed on such a GPU")
      ->check(not_empty);
  verb->add_option("--bench-comm", plan.rates.bench_comm,
                   "measured links: what `bench comm --json` printed, on one host, on several (repeatable)")
      ->allow_extra_args(false)
      ->check(not_empty);
  auto* prices = verb->add_option("--prices", plan.prices,
                                  "prices of rented GPUs, such as configs/prices/gpus.yaml: on demand, reserved, spot")
                     ->check(not_empty);
  const auto add_term = [&](const char* option, auto& value, const char* help) {
    return verb->add_option(option, value, help)->needs(prices);
  };
  add_term("--interruptions", plan.interruptions, "how often an hour a spot machine is taken away (default: 0.05)")
      ->check(CLI::Range(0.0, 1e6));
  add_term("--save-seconds", plan.save_seconds, "time for which a save stops training (default: 10)")
      ->check(CLI::Range(0.0, 1e6));
  add_term("--restart-seconds", plan.restart_seconds, "time until a new machine trains (default: 300)")
      ->check(CLI::Range(0.0, 1e6));
  add_term("--on-demand-nodes", plan.on_demand_nodes, "also a mix: so many machines on demand, the others spot")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag("--json", plan.json, "print one JSON document");
  verb->footer(
      "Varies parallel.shard, replicate, tensor, pipeline, virtual_stages and\n"
      "context, train.micro_batch_size with accumulation, and\n"
      "train.activation_checkpointing; the global batch stays, and so do tensor,\n"
      "pipeline, virtual_stages and context where the job sets them. Starts nothing.\n"
      "Exit code: 0 something fits; 6 nothing fits.");
  verb->callback([this] { action = [this] { return app::library().plan(plan); }; });
}

void CommandLine::add_sweep() {
  auto* verb = app.add_subcommand("sweep", "search for good settings: run trials of a job, each with other values");
  add_job(*verb, sweep.job);
  verb->add_option("--output-dir", sweep.job.output_dir, "the folder of the sweep, as --set output_dir=DIR");
  verb->add_flag("--json", sweep.json, "print the trials as JSON at the end");
  verb->footer(
      "The job's `sweep:` says what is varied and how. Each trial is a run in the folder\n"
      "trial-NNN of the sweep's; the same command goes on where the sweep was stopped or\n"
      "killed. At the end: a table, and best.yaml, the job with the best settings.");
  verb->callback([this] { action = [this] { return app::library().sweep(sweep); }; });
}

void CommandLine::add_init() {
  auto* verb = app.add_subcommand("init", "write a job for data, or a recipe, to begin with");
  verb->add_option("data", init.data,
                   "a folder with a folder of images for each class, or of images and masks, a .tar, IDX files, a file "
                   "of records, or a .txt file")
      ->check(not_empty);
  verb->add_option("--output", init.output, "the job file to write (default: job.yaml)")->check(not_empty);
  verb->add_option("--model", init.model, "a published model to begin with: a folder, or a name that is fetched")
      ->check(not_empty);
  verb->add_option("--quantize", init.quantize, "with --model: keep it packed, nf4 for instance, beside an adapter")
      ->check(not_empty);
  verb->add_option("--recipe", init.recipe, "write this recipe instead")->check(not_empty);
  verb->add_flag("--list", init.list, "print the recipes, and the memory that they need");
  verb->footer(
      "Images with classes or masks, texts, conversations, preferences, labels, tags and\n"
      "pairs are recognised by their files, columns and values. Language models learn by\n"
      "LoRA beside --model.");
  verb->callback([this] { action = [this] { return app::library().init(init); }; });
}

void CommandLine::add_import() {
  auto* verb =
      app.add_subcommand("import", "write a job from one of axolotl, LLaMA-Factory, TRL, timm or transformers");
  verb->add_option("file", import_request.file, "its YAML or JSON file, or a shell script with the command line")
      ->required()
      ->check(not_empty);
  verb->add_option("--from", import_request.tool, "the tool, if the keys do not tell")
      ->check(CLI::IsMember({"axolotl", "llamafactory", "trl-sft", "trl-dpo", "trl-kto", "trl-orpo", "trl-reward",
                             "timm", "transformers"}));
  verb->add_option("--output", import_request.output, "the job file to write (default: job.yaml)")->check(not_empty);
  verb->add_flag("--json", import_request.json, "print which keys were moved, and why others were not, as JSON");
  verb->callback([this] { action = [this] { return app::library().import_job(import_request); }; });
}

}  // namespace gputrain
