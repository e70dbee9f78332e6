// Subcommands of the command line. Each returns the exit code of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/inspect/plan_rates.hpp"
#include "gputrain/job/job_request.hpp"
#include "gputrain/run/run_request.hpp"

namespace gputrain::app {

/// Request of `gputrain launch`: its own options as settings of the job, and the command that every rank runs.
struct LaunchRequest {
  RunRequest run;
  std::optional<JobRequest> measures;  // ranks run `bench comm` or `eval` with this job, instead of `run`
  std::vector<std::string> set;        // "launch.max_restarts=2"
  std::vector<std::string> arguments;  // command of every rank: "run", "job.yaml", ...
};

struct EvalRequest {
  JobRequest job;
  std::string weights;  // model.safetensors or a run folder; empty: the job's own run folder
  std::string on = "val";
  bool json = false;
  /// Questions and texts for a language model, instead of the job's data. The job may be a run folder, or the folder or
  /// the name of a published model.
  struct Suite {
    std::string file;         // empty: the job's data
    std::string samples;      // file to write, with a line for each item of the suite; empty: none
    int64_t batch_size = 32;  // texts side by side
  } suite;
};

struct GenerateRequest {
  std::string folder;            // run folder, or folder of a published model
  std::vector<std::string> set;  // --set a.b=YAML
  std::string tokenizer;         // name of a published one; empty: the folder's own
  std::optional<std::string> prompt;
  std::string prompts;  // file of prompts; empty: `prompt`, or lines of stdin
  bool chat = false;    // prompts are messages of a user, in the model's chat template
  std::string system;   // first message, with `chat`
  bool json = false;
  int64_t max_new_tokens = 256;
  std::vector<std::string> stop;  // text that ends an answer, which stops before it
  double temperature = 0;
  int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t seed = 0;
  int64_t batch_size = 8;
};

struct ExportRequest {
  std::string folder, out;        // run folder or folder of a published model; folder or file
  std::string format;             // "hf", "gguf", "adapter", "sentence-transformers", "onnx", or one of schedulers()
  std::string dtype;              // "f32", "f16", "bf16", "q8_0"; empty: the type that the run computed in
  bool merge = false;             // whether to merge an adapter into its model
  std::string base = "original";  // "original", "quantised": weights into which an adapter is merged
  bool has_base = false;          // whether the user said so
  std::vector<std::string> set;   // --set a.b=YAML
  std::string tokenizer;          // name of a published one; empty: the folder's own
  // For schedulers, where `folder` is the job's file, and `out` empty for stdout:
  std::string image;                 // of containers; empty: none given
  std::vector<std::string> volumes;  // "NAME:/path"
};

/// Request of `gputrain predict` and `gputrain embed`.
struct PredictRequest {
  std::string folder;              // run folder or folder of a published model
  std::vector<std::string> files;  // one file of texts; for predict also any number of images
  std::string output;              // empty: stdout
  std::string masks;               // folder for masks of images, for predict; empty: none
  std::vector<std::string> set;    // --set a.b=YAML
  std::string tokenizer;           // name of a published one; empty: the folder's own
  bool json = false;
  int64_t batch_size = 32;
};

struct ReplayRequest {
  std::string run;  // run folder
  int64_t step = 0;
  bool json = false;
};

struct PruneRequest {
  std::string run;  // run folder or its ckpt/
  int64_t keep_last = 0, keep_best = 0, keep_every = 0;
  bool set_aside = false;  // whether to remove those that were set aside, or are of other branches, too
  bool dry_run = false;
  bool json = false;
};

/// Request of `gputrain bench train`. An empty list means the job's value.
struct BenchRequest {
  JobRequest job;
  std::vector<std::string> precision, checkpointing;
  std::vector<int64_t> micro_batch, accumulation;
  int64_t steps = 30, warmup = 10, rounds = 1;
  bool synthetic = false;
  bool json = false;
};

/// Request of `gputrain bench comm`, which every rank runs. The job only says how ranks start and on which device.
struct BenchCommRequest {
  JobRequest job;
  std::vector<std::string> collectives;  // empty: all
  int64_t min_bytes = 8, max_bytes = int64_t{64} << 20, factor = 2;
  int64_t iterations = 20, warmup = 5;
  bool json = false;
};

/// Request of `gputrain bench data`.
struct BenchDataRequest {
  JobRequest job;
  int64_t samples = 1000;
  bool json = false;
};

// Functions in the program itself, which starts without LibTorch.
int launch_command(const LaunchRequest& request);
/// Runs the process that `gputrain launch` starts on each host. It talks to the launcher through stdin and stdout.
int agent_command();

// Functions in libgputrain.so.
int run_command(const RunRequest& request);
int eval_command(const EvalRequest& request);
int generate_command(const GenerateRequest& request);
int predict_command(const PredictRequest& request);
int embed_command(const PredictRequest& request);
int export_model_command(const ExportRequest& request);
struct FetchCommand {
  std::string name;         // model on the Hugging Face Hub, perhaps with @REVISION
  std::string revision;     // branch, tag or commit; empty: that of the name, or main
  bool no_weights = false;  // whether to fetch only the files that describe the model
};
/// Runs `gputrain fetch NAME`.
int fetch_command(const FetchCommand& command);
/// Returns 4 if the replayed step differs from the recorded one.
int replay_command(const ReplayRequest& request);
/// Returns 6 if no combination fits into memory.
int bench_train_command(const BenchRequest& request);
/// Measures the job as it is, in this process, and prints the row as JSON.
int bench_one_command(const BenchRequest& request);
/// Returns 4 if a collective gave wrong numbers.
int bench_comm_command(const BenchCommRequest& request);
int bench_data_command(const BenchDataRequest& request);
int validate_command(const JobRequest& request, bool json);
int config_command(const JobRequest& request, bool origin);
/// Prints the schema. This and the next two include the entries of plug-ins, which are given by their files.
int schema_command(const std::vector<std::string>& plugins);
int list_command(const std::string& kind, const std::vector<std::string>& plugins);
/// Prints a description. `page`: prints that page in Markdown instead; empty: none.
int describe_command(const std::string& kind, const std::string& name, const std::string& page,
                     const std::vector<std::string>& plugins);
/// Runs `gputrain data audit RUN`.
int audit_command(const std::string& run, bool json);
struct TokenizeCommand {
  std::vector<std::string> files;
  std::string tokenizer, output;
  std::string end;  // token at the end of a text; empty: the tokenizer's own
};
struct DoctorRequest {
  std::string job;                 // empty: none
  std::vector<std::string> hosts;  // empty: this one
  bool json = false;
  bool measures = false;        // whether to measure the machine, too, and compare it with the best known of its kind
  double least_percent = 80;    // required share of the best rate
  std::string device = "auto";  // device to measure: auto, cpu, cuda
  bool serves = false;          // whether it works for another host, see doctor/hosts.hpp
  std::string folder;           // folder whose disk is measured; with `serves` the working folder
};
/// Runs `gputrain doctor`. Returns 6 if something makes a machine unfit to train, or is too slow.
int doctor_command(const DoctorRequest& request);
/// Runs `gputrain data tokenize FILES...`.
int tokenize_command(const TokenizeCommand& request);
/// Request of `gputrain ctl RUN VERB [SETTING]`.
struct CtlCommand {
  std::string run, verb, argument;
  bool json = false;
};
int ctl_command(const CtlCommand& command);
/// Request of `gputrain top [RUN|FOLDER|HOST:PORT]`.
struct TopCommand {
  std::string run;    // folder of a run, of a sweep or of runs, or host:port
  bool once = false;  // whether to print one page and end
  bool json = false;  // whether to print the runs of the folder as one document
};
int top_command(const TopCommand& command);
/// Request of `gputrain compare RUN...`.
struct CompareCommand {
  std::vector<std::string> runs;  // folders of runs, of sweeps or with runs in them
  std::string html;               // page with their curves; empty: none
  bool json = false;
};
int compare_command(const CompareCommand& command);
struct DataShowRequest {
  JobRequest job;
  std::string on = "train";  // train, val, test
  int64_t limit = 0;         // number of samples; 0: 5 texts or 24 images
  bool json = false;
  std::string output;  // page to write, for images
};
/// Runs `gputrain data show JOB`.
int data_show_command(const DataShowRequest& request);
int version_command();
/// Lists names for shells that complete a word: "keys" of a job, "kinds" of entries, or "entries" with their kinds.
std::vector<std::string> names_command(const std::string& kind);
struct PlanCommand {
  JobRequest job;
  int world_size = 1;
  std::string device_memory;      // size such as "80GiB"; empty: that of the named GPUs, or of a GPU here
  std::vector<std::string> gpus;  // kinds of GPUs to compare, with prices of an hour: "4090=0.40"; empty: one kind
  RateSources rates;              // `gpus` is set for each of these kinds
  std::string prices = {};        // file with prices of rented GPUs; empty: none
  double interruptions = 0.05, save_seconds = 10, restart_seconds = 300;  // of rented machines, see RentTerms
  int on_demand_nodes = 0;
  bool json = false;
};
struct InitRequest {
  std::string data;  // folder or file; empty: a recipe
  std::string output = "job.yaml";
  std::string model = {}, quantize = {};  // published model to begin with, and how it is packed; empty: none
  std::string recipe = {};
  bool list = false;  // true: print the recipes
};
/// Runs `gputrain init`.
int init_command(const InitRequest& request);
struct ImportRequest {
  std::string file;  // of another tool
  std::string tool;  // name of that tool; empty: it is told by the keys
  std::string output = "job.yaml";
  bool json = false;
};
/// Runs `gputrain import FILE`.
int import_job_command(const ImportRequest& request);
struct SweepRequest {
  JobRequest job;
  bool json = false;
};
/// Runs `gputrain sweep JOB`. Returns the code of a stop if it was asked to stop.
int sweep_command(const SweepRequest& request);
/// Runs `gputrain plan JOB`. Returns 6 if nothing fits.
int plan_command(const PlanCommand& command);
int ckpt_ls_command(const std::string& run, bool json);
/// Returns 5 if a checkpoint is damaged or none exists.
int ckpt_verify_command(const std::string& path, bool json);
int ckpt_prune_command(const PruneRequest& request);

/// Names of the subcommands in libgputrain.so: NAME_command is the function above.
#define GPUTRAIN_VERBS(V)                                                                                         \
  V(run)                                                                                                          \
  V(eval)                                                                                                         \
  V(generate)                                                                                                     \
  V(predict)                                                                                                      \
  V(embed)                                                                                                        \
  V(export_model)                                                                                                 \
  V(fetch)                                                                                                        \
  V(doctor)                                                                                                       \
  V(replay) V(bench_train) V(bench_one) V(bench_comm) V(bench_data) V(validate) V(config) V(schema) V(list)       \
      V(describe) V(names) V(audit) V(tokenize) V(ctl) V(top) V(compare) V(data_show) V(version) V(plan) V(sweep) \
          V(init) V(import_job) V(ckpt_ls) V(ckpt_verify) V(ckpt_prune)

/// Table of subcommands that the library exports as gputrain_verbs.
struct Verbs {
  void (*check)();  // call first; throws Error(environment) if the library was built wrong
#define GPUTRAIN_VERB(name) decltype(&name##_command) name;
  GPUTRAIN_VERBS(GPUTRAIN_VERB)
#undef GPUTRAIN_VERB
};

}  // namespace gputrain::app
