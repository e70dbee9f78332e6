// Entries of several kinds in one plug-in. The environment variable TRACE names a file that tells that code has run.
#include <cstdlib>
#include <fstream>

#include "gputrain/data/augmentation.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/monitor/sink.hpp"
#include "gputrain/optim/schedule.hpp"

namespace {

using namespace gputrain;

const bool traced = [] {
  const char* file = std::getenv("TRACE");
  if (file != nullptr) std::ofstream(file) << "code of the plug-in has run\n";
  return file != nullptr;
}();

struct StripesSpec {
  int64_t width = 2;
  static void describe(config::Description<StripesSpec>& d) {
    d.key("width", &StripesSpec::width, "of a stripe").range(1, 4).unit("pixels");
  }
};

/// Images of 8 x 8 whose stripes lie or stand.
class Stripes final : public data::Dataset {
 public:
  Stripes(const StripesSpec& spec, const data::DatasetRequest&)
      : width_(spec.width), layout_(data::SampleLayout::images(kSide, kSide, 1, 2)) {}
  int64_t size() const override { return 64; }
  const data::SampleLayout& layout() const override { return layout_; }
  std::string describe() const override { return "stripes"; }
  std::optional<data::Normalization> normalization() const override { return data::Normalization{{0.5}, {0.5}}; }
  void read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const override {
    const bool stands = index % 2 == 1;
    for (int64_t y = 0; y < kSide; ++y)
      for (int64_t x = 0; x < kSide; ++x)
        row.values<uint8_t>(0)[y * kSide + x] = ((stands ? x : y) + index / 2) / width_ % 2 == 0 ? 0 : 255;
    *row.values<int64_t>(1) = stands ? 1 : 0;
  }

 private:
  static constexpr int64_t kSide = 8;
  int64_t width_;
  data::SampleLayout layout_;
};
const config::Registered<Stripes, StripesSpec> registered_stripes{data::catalog(), "stripes", "stripes"};

class Halves final : public optim::Schedule {
 public:
  Halves(const config::NoOptions&, const optim::ScheduleContext& context) : peak_(context.peak_lr) {}
  double lr(int64_t step) const override { return step < 2 ? peak_ : peak_ / 2; }
  std::string describe() const override { return "half after two steps"; }

 private:
  double peak_;
};
const config::Registered<Halves, config::NoOptions> registered_halves{optim::schedules(), "halves", "half"};

struct InvertSpec {
  double probability = 0;
  static void describe(config::Description<InvertSpec>& d) {
    d.key("invert", &InvertSpec::probability, "probability of a negative").range(0, 1);
  }
};
class Invert final : public data::Augmentation {
 public:
  explicit Invert(const InvertSpec& spec) : probability_(spec.probability) {}
  bool is_on() const override { return probability_ > 0; }
  int order() const override { return 70; }

 private:
  double probability_;
};
const config::Registered<Invert, InvertSpec> registered_invert{data::augmentations(), "invert", "a negative"};

/// Steps, as lines of a file.
class StepLines final : public monitor::Sink {
 public:
  StepLines(const config::NoOptions&, const monitor::SinkRequest& request) : file_(request.folder / "steps.txt") {}
  void log(const monitor::Record& record) override {
    if (record.kind == "train") file_ << record.step << ' ' << record.metrics.at("train/lr") << '\n';
  }
  void truncate(int64_t, int64_t) override {}
  void close() override { file_.close(); }

 private:
  std::ofstream file_;
};
const config::Registered<StepLines, config::NoOptions> registered_lines{monitor::sinks(), "step_lines", "steps"};

}  // namespace
