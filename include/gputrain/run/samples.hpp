// What eval.sample lets the model write in an attempt: on the console, in samples.jsonl, and for the run's sinks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/recorder.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/progress.hpp"
#include "gputrain/train/sampler.hpp"

namespace gputrain::app {

class Samples {
 public:
  /// Refers to all arguments but the files. `recorder` also writes samples.jsonl. Throws Error(usage) for a prompt that
  /// the model cannot read.
  Samples(const JobSpec& spec, TrainingSetup& setup, const TextFiles& files, monitor::Console& console,
          monitor::Recorder& recorder, const RunFolder& folder);

  /// Lets the model write on rank 0; every rank must call if no rank has all weights. Records it if samples.jsonl does
  /// not have this step.
  void write(const train::Progress& progress);

 private:
  void show(int64_t step, const std::vector<monitor::WrittenText>& texts);

  TrainingSetup& setup_;
  monitor::Console& console_;
  monitor::Recorder& recorder_;
  std::filesystem::path file_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  train::SampleOptions options_;
  std::vector<train::SamplePrompt> prompts_;
};

}  // namespace gputrain::app
