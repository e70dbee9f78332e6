#include "gputrain/run/samples.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/monitor/samples_file.hpp"

namespace gputrain::app {

Samples::Samples(const JobSpec& spec, TrainingSetup& setup, const TextFiles& files, monitor::Console& console,
                 monitor::Recorder& recorder, const RunFolder& folder)
    : setup_(setup),
      console_(console),
      recorder_(recorder),
      file_(folder.samples()),
      tokenizer_(setup.datasets.train->tokenizer()),
      options_{.spec = *spec.eval.sample,
               .end_tokens = files.end_tokens,
               .text_length = setup.datasets.train->layout().token_count(),
               .seed = static_cast<uint64_t>(spec.seed)},
      prompts_(train::prompts_of(options_.spec, *tokenizer_, conversation_form(spec, files.chat_template))) {
  train::check_prompts(prompts_, *setup.built.model, options_);
}

void Samples::write(const train::Progress& progress) {
  auto& model = *setup_.built.model;
  const bool was_training = model.is_training();
  const device::Reading reading(setup_.built.arena->working_copy());
  auto texts = train::write_samples(model, *tokenizer_, prompts_, options_);
  model.train(was_training);
  if (setup_.context.rank() != 0) return;
  show(progress.step, texts);
  if (monitor::has_samples_of(file_, progress.step)) return;  // an attempt that had ended, and is started again
  recorder_.log({.step = progress.step,
                 .epoch = setup_.plan.epochs_in(progress.step),
                 .kind = "sample",
                 .texts = std::move(texts)});
}

/// Shows a line for each answer to what was asked last, and the whole of texts that go on.
void Samples::show(int64_t step, const std::vector<monitor::WrittenText>& texts) {
  constexpr size_t kLongestPrompt = 30;
  constexpr std::string_view kAsks = "\n\nuser: ";
  for (const monitor::WrittenText& one : texts) {
    if (one.is_answer) {
      const size_t asks = one.prompt.rfind(kAsks);
      const std::string asked = asks == std::string::npos ? one.prompt : one.prompt.substr(asks + kAsks.size());
      console_.short_line("sample", grouped(step) + "  " + cut_to(asked, kLongestPrompt) + " -> " + one.text);
    } else {
      console_.line("sample", grouped(step));
      console_.block(one.whole());
    }
  }
}

}  // namespace gputrain::app
