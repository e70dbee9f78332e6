#include "gputrain/train/sampler.hpp"

#include "gputrain/core/error.hpp"

namespace gputrain::train {

std::vector<int64_t> generate(models::Model& model, std::vector<int64_t> prompt, generation::ContextWindow context,
                              const std::vector<int64_t>& end_tokens, const SampleSpec& spec, uint64_t seed) {
  context.slides = true;
  const generation::Options options{
      .sampling = {.temperature = spec.temperature, .top_k = spec.top_k.value_or(0)},
      .seed = seed,
      .max_new_tokens = spec.max_new_tokens,
      .end_tokens = end_tokens,
      .context = context,
      .make_graphs = {},  // the memory of a step's graph is lent to this work, and holds no other graph
  };
  const auto continued = generation::generate(model, {prompt}, options)[0];
  prompt.insert(prompt.end(), continued.tokens.begin(), continued.tokens.end() - (continued.is_ended ? 1 : 0));
  return prompt;
}

std::string write_sample(models::Model& model, const data::Dataset& vocabulary, int64_t context_length,
                         const std::vector<int64_t>& end_tokens, const SampleSpec& spec, uint64_t seed) {
  const auto tokenizer = vocabulary.tokenizer();
  const auto prompt = tokenizer->encode(spec.prompt, "the prompt");
  GPUTRAIN_ASSERT(!prompt.empty(), "a prompt that has been checked");
  // On a GPU use one length: choosing and compiling kernels per length takes longer than the whole sample.
  const generation::ContextWindow context{.length = context_length, .has_one_length = !model.context().device.is_cpu()};
  return tokenizer->decode(generate(model, prompt, context, end_tokens, spec, seed));
}

}  // namespace gputrain::train
