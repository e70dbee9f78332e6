// The `data` section of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gputrain/config/describe.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::data {

/// Source of the training data.
struct TrainSource {
  std::string path;
  config::Choice format;

  static void describe(config::Description<TrainSource>& d) {
    d.summary("what is trained on");
    d.key("path", &TrainSource::path, "file, folder or pattern; format synthetic needs none")
        .path()
        .change(config::Change::needs_accept);
    d.choice("format", &TrainSource::format, catalog(), "how the data is stored; its options stand beside it")
        .required()
        .aliases({"data.train.type"});
  }
};

/// Source of validation or test data.
struct HeldOutSource {
  std::optional<std::string> path;
  config::Choice format;
  std::optional<config::Length> split;

  static void describe(config::Description<HeldOutSource>& d) {
    d.summary("data for evaluation: its own, or a part of the training data, which is then not trained on");
    d.key("path", &HeldOutSource::path,
          "file, folder or pattern; null: as data.train, with the files chosen by role or `prefix`")
        .path()
        .change(config::Change::needs_accept);
    d.choice("format", &HeldOutSource::format, catalog(), "how the data is stored; default: as data.train")
        .inherits("data.train.format")
        .aliases({"data.val.type", "data.test.type"});
    d.key("split", &HeldOutSource::split,
          "use this part of the training data: 10%. Text: the end; other data: a fixed random choice")
        .units({config::Length::Unit::percent})
        .above(0)
        .below(100);
    d.check([](const HeldOutSource& source, config::SpecIssues& issues) {
      if (source.split && source.path) issues.add("split", "path and split exclude each other");
    });
  }
};

struct DataSpec {
  TrainSource train;
  std::optional<HeldOutSource> val, test;
  ImageOptions image;
  TextOptions text;
  config::Auto<int64_t> num_workers;
  bool pin_memory = true;
  int64_t prefetch_factor = 2;
  std::string last = "pad";
  double max_bad_fraction = 0;

  static void check(const DataSpec& spec, config::SpecIssues& issues);

  static void describe(config::Description<DataSpec>& d) {
    d.summary("data and how it is read");
    d.key("train", &DataSpec::train, "what is trained on").required();
    d.key("val", &DataSpec::val, "what is evaluated on during training");
    d.key("test", &DataSpec::test, "what is evaluated on at the end");
    d.key("image", &DataSpec::image, "how images become the model's input");
    d.key("text", &DataSpec::text, "how text becomes the model's input");
    d.key("num_workers", &DataSpec::num_workers,
          "threads that read data ahead; 0: none, the compute threads read; auto: from format and CPU cores")
        .range(0, 1024)
        .unit("threads")
        .change(config::Change::safe)
        .aliases({"dataloader_num_workers", "workers", "num_data_workers"});
    d.key("pin_memory", &DataSpec::pin_memory,
          "read into pinned memory, so that copies to the GPU run in the background")
        .change(config::Change::safe)
        .aliases({"dataloader_pin_memory"});
    d.key("prefetch_factor", &DataSpec::prefetch_factor, "micro-batches kept ready; never fewer than one step has")
        .range(1, 1024)
        .unit("micro-batches")
        .change(config::Change::safe)
        .aliases({"dataloader_prefetch_factor"});
    d.key("last", &DataSpec::last,
          "the last partial step of an epoch: pad (every sample counts once, also in batch norm) or drop")
        .choices({"pad", "drop"})
        .aliases({"drop_last", "dataloader_drop_last"});
    d.key("max_bad_fraction", &DataSpec::max_bad_fraction,
          "skip up to this fraction of an epoch's samples if they cannot be read")
        .range(0, 1)
        .change(config::Change::safe);
    d.check([](const DataSpec& spec, config::SpecIssues& issues) { check(spec, issues); });
  }
};

}  // namespace gputrain::data
