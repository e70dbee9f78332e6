// `gputrain data show`: texts as the model gets them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/open.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/console.hpp"

namespace gputrain::app {
namespace {

struct TextSample {
  std::vector<int64_t> tokens, targets;
};

/// Memory of one row, which reads a sample after the other.
class SampleReader {
 public:
  explicit SampleReader(const data::Dataset& dataset) : dataset_(dataset) {
    const auto& fields = dataset.layout().fields;
    values_.resize(fields.size());
    counts_.resize(fields.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      values_[i].resize(static_cast<size_t>(fields[i].numel()));
      memory_.push_back({.values = reinterpret_cast<std::byte*>(values_[i].data()),
                         .counts = fields[i].ragged ? &counts_[i] : nullptr,
                         .bytes = fields[i].bytes(),
                         .element_bytes = sizeof(int64_t)});
    }
  }

  /// Throws Error(data) if the sample cannot be read.
  TextSample read(int64_t index) {
    dataset_.read(index, {}, data::SampleRow(memory_, 0));
    const auto& fields = dataset_.layout().fields;
    TextSample sample;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].name != kTokens && fields[i].name != kTarget) continue;
      const auto count = fields[i].ragged ? counts_[i] : std::ssize(values_[i]);
      (fields[i].name == kTokens ? sample.tokens : sample.targets)
          .assign(values_[i].begin(), values_[i].begin() + count);
    }
    return sample;
  }

 private:
  const data::Dataset& dataset_;
  std::vector<std::vector<int64_t>> values_;
  std::vector<int64_t> counts_;
  data::BatchMemory memory_;
};

/// The text, with the parts that are learned between `begin` and `end`. The first token has nothing before it to be
/// learned from.
std::string marked(const TextSample& sample, const tokenizers::Tokenizer& tokenizer, const std::string& begin,
                   const std::string& end) {
  std::string shown;
  bool is_inside = false;
  size_t written = 0;
  const auto write_until = [&](size_t count) {
    const std::string decoded = tokenizer.decode(std::span(sample.tokens).first(count));
    shown += printable(decoded.substr(std::min(written, decoded.size())), "\n\t");
    written = decoded.size();
  };
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    const bool is_learned = i > 0 && sample.targets[i - 1] != kIgnoreIndex;
    if (is_learned == is_inside) continue;
    write_until(i);
    shown += is_learned ? begin : end;
    is_inside = is_learned;
  }
  write_until(sample.tokens.size());
  return shown + (is_inside ? end : "");
}

/// The data of a role, text by text: packing only changes which of them share a row.
std::shared_ptr<const data::Dataset> texts_of(const DataShowRequest& request, const Job& job) {
  data::DataSpec spec = job.spec().data;
  spec.text.packing = false;
  const InputSpec model = models::catalog().reads(job.spec().model.architecture);
  const auto splits =
      data::open_datasets(spec, model, {job.output_dir.string()}, job.spec().model.pretrained_path().string());
  const auto dataset = request.on == "train" ? splits.train : request.on == "val" ? splits.val : splits.test;
  if (!dataset)
    throw Error(ExitCode::usage, {.what = "the job has no data." + request.on, .hint = "add it, or leave --on out"});
  if (dataset->layout().token_count() == 0)
    throw Error(ExitCode::usage, {.what = "the data is no text", .where = "data." + request.on});
  return dataset;
}

}  // namespace

int data_show_command(const DataShowRequest& request) {
  const Job job = load_job(request.job);
  const auto dataset = texts_of(request, job);
  const auto tokenizer = dataset->tokenizer();
  const auto options = monitor::Console::detect(!request.json);
  monitor::Console console(options);
  console.show("data", dataset->describe());
  const std::string begin = options.colour ? "\x1b[32m" : "[[", end = options.colour ? "\x1b[0m" : "]]";
  SampleReader reader(*dataset);
  for (int64_t i = 0; i < std::min(request.limit, dataset->size()); ++i) {
    TextSample sample;
    try {
      sample = reader.read(i);
    } catch (const Error& bad) {
      if (bad.code() != ExitCode::data) throw;
      console.show("sample", fmt::format("{}  cannot be used: {}", i + 1, bad.what()));
      continue;
    }
    if (request.json) {
      std::printf("%s\n", nlohmann::json({{"tokens", sample.tokens}, {"targets", sample.targets}}).dump().c_str());
      continue;
    }
    console.show("sample", fmt::format("{}  {} tokens", i + 1, sample.tokens.size()));
    const std::string text =
        tokenizer ? marked(sample, *tokenizer, begin, end) : fmt::format("{}", fmt::join(sample.tokens, " "));
    std::printf("%s\n", text.c_str());
  }
  return 0;
}

}  // namespace gputrain::app
