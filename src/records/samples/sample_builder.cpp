// Common parts of builders of samples, and their register.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "../tokens/encoded_texts.hpp"
#include "../tokens/examples.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/content_hash.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

std::vector<std::pair<Target, MakeBuilder>>& builders() {
  static std::vector<std::pair<Target, MakeBuilder>> all;
  return all;
}

/// Returns null if nothing makes samples for it.
const MakeBuilder* find_builder(const Target& target) {
  const auto found = std::ranges::find(builders(), target, [](const auto& each) { return each.first; });
  return found == builders().end() ? nullptr : &found->second;
}

}  // namespace

void add_builder(const Target& target, MakeBuilder make) {
  if (find_builder(target) != nullptr)
    throw std::logic_error("samples for '" + std::string(target.name()) + "' are made in two ways");
  builders().emplace_back(target, std::move(make));
}

std::unique_ptr<SampleBuilder> builder_for(const data::DatasetRequest& request) {
  const Target& target = request.model.target;
  if (const MakeBuilder* make = find_builder(target)) return (*make)(request);
  throw Error(ExitCode::usage, {.what = "records have no samples for a model that gives " + std::string(target.gives()),
                                .where = request.path,
                                .hint = "task.type says what is learned; a task of a plug-in has a reader of records"});
}

std::vector<Target> targets_with_builder() {
  std::vector<Target> targets;
  for (const auto& [target, make] : builders()) targets.push_back(target);
  return targets;
}

SampleBuilder::SampleBuilder(const data::DatasetRequest& request, int64_t streams)
    : options_(request.text != nullptr ? *request.text : data::TextOptions()),
      target_(request.model.target),
      streams_(streams) {}

SampleBuilder::~SampleBuilder() = default;

std::vector<std::string> SampleBuilder::texts_for_tokenizer(const Draft& draft) const {
  std::vector<std::string> texts;
  for (const LearnedText& text : draft.texts) texts.push_back(text.text);
  return texts;
}

void SampleBuilder::read_input(const nlohmann::ordered_json&, Draft&) const {
  assertion_failed("read_input", __FILE__, __LINE__, "no trained model reads inputs of these samples");
}

int64_t SampleBuilder::usual_length() const { return std::numeric_limits<int32_t>::max(); }

uint64_t SampleBuilder::content_hash(const MadeSamples& made, const PackedRows&) const {
  const auto streams = std::ssize(made.streams);
  return data::content_hash(streams + (made.columns > 0 ? 1 : 0), [&](int64_t part) {
    return data::content_of(part < streams ? std::as_bytes(made.streams[static_cast<size_t>(part)].values.values())
                                           : std::as_bytes(made.numbers.values()));
  });
}

EncodedSample encoded_sample(FramedTexts texts) {
  EncodedSample sample{.second = static_cast<int64_t>(texts.second),
                       .full_size = texts.full_size,
                       .is_cut = texts.full_size > std::ssize(texts.tokens)};
  sample.streams.emplace_back(texts.tokens.begin(), texts.tokens.end());
  return sample;
}

std::span<const uint32_t> MadeSamples::Stream::of(int64_t index) const noexcept {
  const auto at = static_cast<size_t>(index);
  const int64_t begin = at == 0 ? 0 : ends[at - 1];
  return values.values().subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
}

int64_t MadeSamples::Stream::learned_count(int64_t index) const { return records::learned_count(of(index)); }

void MadeSamples::Stream::read(int64_t index, int64_t* tokens, int64_t* targets) const {
  read_example(of(index), tokens, targets);
}

void MadeSamples::add(const EncodedSample& sample, std::vector<float> target) {
  for (size_t i = 0; i < streams.size(); ++i) {
    if (i < sample.streams.size()) streams[i].values.append(sample.streams[i]);
    streams[i].ends.push_back(streams[i].values.size());
  }
  seconds.push_back(sample.second);
  target.resize(static_cast<size_t>(columns));
  numbers.append(target);
  longest = std::max(longest, longest_of(size() - 1));
  if (!sample.is_cut) return;
  ++cut;
  longest_uncut = std::max(longest_uncut, sample.full_size);
}

void MadeSamples::add_bad(const Draft& draft, std::vector<float> target) {
  problems[size()] = {draft.problem, draft.place};
  add({}, std::move(target));
}

int64_t MadeSamples::longest_of(int64_t index) const noexcept {
  int64_t most = 0;
  for (const Stream& stream : streams) most = std::max(most, stream.length(index));
  return most;
}

int64_t MadeSamples::sum_of(int64_t index) const noexcept {
  int64_t sum = 0;
  for (const Stream& stream : streams) sum += stream.length(index);
  return sum;
}

}  // namespace gputrain::records
