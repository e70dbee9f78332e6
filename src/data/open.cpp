#include "gputrain/data/open.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/data/subset.hpp"

namespace gputrain::data {
namespace {

double fraction_of(const std::optional<HeldOutSource>& source) {
  return source && source->split ? source->split->value / 100 : 0;
}

std::string key_of(Split role) {
  return role == Split::val ? "data.val" : role == Split::test ? "data.test" : "data.train";
}

/// Refuses a split; `reason` is the format's message, or empty.
[[noreturn]] void refuse_split(const Dataset& whole, double share, Split role, const std::string& reason) {
  const bool is_held_out = role != Split::train;
  throw Error(ExitCode::data,
              {.what = fmt::format("{:.6g}% of the training data is less than one sample{}; it has {}", 100 * share,
                                   reason.empty() ? "" : " (" + reason + ")", whole.describe()),
               .where = is_held_out ? key_of(role) + ".split" : "data.train",
               .hint = is_held_out ? "use a larger split, or separate data: " + key_of(role) + ".path"
                                   : "make the splits of data.val and data.test smaller"});
}

std::shared_ptr<const Dataset> part_of(const std::shared_ptr<const Dataset>& whole, double begin, double end,
                                       Split role) {
  std::shared_ptr<const Dataset> part;
  try {
    part = whole->part(begin, end, role);
  } catch (const Error& too_little) {
    if (too_little.code() != ExitCode::data) throw;
    refuse_split(*whole, end - begin, role, too_little.parts().what);
  }
  if (!part) part = std::make_shared<Subset>(whole, begin, end);
  if (part->size() < 1) refuse_split(*whole, end - begin, role, "");
  return part;
}

/// Describes samples in words that are equal for those of one kind.
std::string kind_of(const SampleLayout& layout) {
  std::string text;
  if (!layout.is_image()) {
    const bool is_packed = layout.find(kTextOfToken) != nullptr;
    const std::vector<int64_t> one_a_token{layout.token_count()};
    for (const Field& field : layout.fields)
      text += (text.empty() ? "" : ", ") + field.name +
              (field.ragged                              ? " of any length"
               : is_packed || field.sizes == one_a_token ? ""
                                                         : fmt::format(" [{}]", fmt::join(field.sizes, ", ")));
    return text;
  }
  const Field* target = layout.target();
  if (target == nullptr) return "images";
  if (target->type != at::kLong) return "images with " + counted(target->numel(), "number") + " each";
  return std::string("images with a class ") + (target->sizes.empty() ? "each" : "of each pixel") + ", of " +
         counted(layout.outputs, "class");
}

/// Checks layouts now, because otherwise a long training would fail at its first evaluation. Images and texts may
/// differ in size; all other samples must have the sizes that the model was built for.
void check_alike(const Dataset& train, const std::shared_ptr<const Dataset>& other, const std::string& key) {
  if (!other) return;
  const std::string wanted = kind_of(train.layout()), found = kind_of(other->layout());
  if (found == wanted) return;
  throw Error(ExitCode::data,
              {.what = "its samples are " + found + ", but those of data.train are " + wanted, .where = key});
}

class Opener {
 public:
  Opener(const DataSpec& spec, const InputSpec& model, const std::vector<std::string>& own_folders,
         const std::string& pretrained)
      : spec_(spec) {
    request_.pretrained = pretrained;
    request_.max_bad_fraction = spec.max_bad_fraction;
    request_.image = &spec.image;
    request_.text = &spec.text;
    request_.files = &files_;
    request_.model = model;
    request_.own_folders = own_folders;
    if (!model.reads_tokens()) return;
    const int64_t told = spec.text.max_length.value.value_or(0), most = model.longest;
    request_.sequence_length = told > 0 && most > 0 ? std::min(told, most) : std::max(told, most);
  }

  DatasetSplits open() {
    const std::shared_ptr<const Dataset> whole = make(spec_.train.path, spec_.train.format, Split::train);
    trained_on_ = files_;
    const Signature learned = Signature::of(*whole, request_.model);
    request_.train = &learned;
    const double val = fraction_of(spec_.val), test = fraction_of(spec_.test), train = 1 - val - test;
    DatasetSplits datasets;
    datasets.train = train < 1 ? part_of(whole, 0, train, Split::train) : whole;
    datasets.val = held_out(spec_.val, whole, {train, 1 - test}, Split::val);
    datasets.test = held_out(spec_.test, whole, {1 - test, 1}, Split::test);
    check_alike(*datasets.train, datasets.val, "data.val");
    check_alike(*datasets.train, datasets.test, "data.test");
    return datasets;
  }

 private:
  std::shared_ptr<const Dataset> make(const std::string& path, const config::Choice& format, Split role) {
    request_.path = path;
    request_.role = role;
    files_.clear();
    return catalog().make(format, request_);
  }

  std::shared_ptr<const Dataset> held_out(const std::optional<HeldOutSource>& source,
                                          const std::shared_ptr<const Dataset>& whole, std::pair<double, double> range,
                                          Split role) {
    if (!source) return nullptr;
    if (source->split) return part_of(whole, range.first, range.second, role);
    auto dataset = make(source->path.value_or(spec_.train.path),
                        source->format.name.empty() ? spec_.train.format : source->format, role);
    const std::string key = key_of(role);
    if (files_ != trained_on_) warn_of_shared_files(key);
    if (!files_.empty() && files_ == trained_on_) {
      log::warning(key + " reads the same files as data.train, so it evaluates on samples that were trained on. " +
                   key + ": {split: 10%} keeps some for evaluation");
    }
    return dataset;
  }

  /// Warns if a folder of training data has the files for evaluation in it. Formats that read a part of a file or of a
  /// folder report more than names of files.
  void warn_of_shared_files(const std::string& key) const {
    const auto is_file = [](const std::string& name) {
      std::error_code unknown;
      return std::filesystem::is_regular_file(name, unknown);
    };
    if (!std::ranges::all_of(trained_on_, is_file) || !std::ranges::all_of(files_, is_file)) return;
    const auto whole_name = [](const std::string& file) {
      return std::filesystem::absolute(file).lexically_normal().string();
    };
    std::set<std::string> trained;
    for (const std::string& file : trained_on_) trained.insert(whole_name(file));
    std::string first;
    const auto shared = std::ranges::count_if(files_, [&](const std::string& file) {
      const bool is_shared = trained.contains(whole_name(file));
      if (is_shared && first.empty()) first = file;
      return is_shared;
    });
    if (shared > 0)
      log::warning(key + " reads " + counted(shared, "file") + " that data.train reads too, " + printable(first) +
                   (shared > 1 ? " for example" : "") + ": it evaluates on samples that were trained on");
  }

  const DataSpec& spec_;
  std::vector<std::string> files_, trained_on_;
  DatasetRequest request_;
};

}  // namespace

void DataSpec::check(const DataSpec& spec, config::SpecIssues& issues) {
  if (fraction_of(spec.val) + fraction_of(spec.test) >= 1)
    issues.add("test.split", "val and test together leave nothing to train on");
}

DatasetSplits open_datasets(const DataSpec& spec, const InputSpec& model, const std::vector<std::string>& own_folders,
                            const std::string& pretrained) {
  return Opener(spec, model, own_folders, pretrained).open();
}

int automatic_workers(const Dataset& dataset, at::Device device, int cpus) {
  // On a CPU the compute threads read: extra threads would only take their cores.
  if (device.is_cpu()) return 0;
  if (dataset.is_cheap_to_read()) return 1;
  constexpr int kMostWorkers = 32;
  return std::clamp(cpus - 1, 1, kMostWorkers);
}

}  // namespace gputrain::data
