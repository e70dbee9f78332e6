// A plain tar archive with one folder of JPEG and PNG files for each class, read in place.
#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "image_samples.hpp"
#include "tar_index.hpp"

namespace gputrain::datasets {
namespace {

struct TarSpec {
  std::string prefix;

  static void describe(config::Description<TarSpec>& d) {
    d.summary("a plain tar archive of images, one folder for each class; read in place, never unpacked");
    d.key("prefix", &TarSpec::prefix, "a folder inside the archive that holds the classes: train");
  }
};

class TarStore final : public ImageStore {
 public:
  TarStore(const std::string& path, std::string prefix, const std::vector<std::string>& known)
      : file_(path), prefix_(std::move(prefix)) {
    while (prefix_.ends_with('/')) prefix_.pop_back();
    if (!prefix_.empty()) prefix_ += '/';
    std::vector<TarEntry> entries;
    visit_tar(file_, [&](TarEntry&& entry) {
      if (takes(entry)) entries.push_back(std::move(entry));
    });
    keep_last_of_each_name(entries);
    std::vector<std::string> names;
    for (TarEntry& entry : entries) {
      names.push_back(std::move(entry.name));
      places_.push_back({entry.offset, entry.size});
    }
    set_names(names, known, where());
  }

  std::string full_name(int64_t index) const override {
    return file_.path() + ": " + prefix_ + std::string(name(index));
  }

  void read(int64_t index, std::vector<std::byte>& bytes) const override {
    const auto [offset, size] = places_[static_cast<size_t>(index)];
    bytes.resize(static_cast<size_t>(size));
    file_.read(offset, bytes);
  }

 private:
  struct Place {
    int64_t offset, size;
  };

  std::string where() const { return prefix_.empty() ? file_.path() : file_.path() + ": " + prefix_; }

  [[noreturn]] void refuse(const TarEntry& entry, const std::string& what, const std::string& hint = {}) const {
    throw Error(ExitCode::data, {.what = what, .where = file_.path() + ": " + entry.name, .hint = hint});
  }

  /// True for images below the prefix, whose name it shortens by that.
  bool takes(TarEntry& entry) const {
    if (!entry.name.starts_with(prefix_) || !is_image_name(entry.name)) return false;
    const std::string slashed = "/" + entry.name + "/";
    if (entry.name.starts_with('/') || slashed.find("/../") != std::string::npos)
      refuse(entry, "an unsafe name in the archive: it leads out of it");
    if (entry.is_link)
      refuse(entry, "a link instead of an image", "write the archive with tar --dereference --hard-dereference");
    if (entry.size > kMostImageBytes) refuse(entry, "an image file of " + std::to_string(entry.size) + " bytes");
    const std::string whole = entry.name;
    entry.name.erase(0, prefix_.size());
    if (entry.name.find('/') != std::string::npos) return true;
    entry.name = whole;
    refuse(entry, "an image outside of the folders of the classes");
  }

  /// In order of the names; of entries with the same name the last one holds, as when the archive is unpacked.
  static void keep_last_of_each_name(std::vector<TarEntry>& entries) {
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::reverse(entries.begin(), entries.end());
    entries.erase(
        std::unique(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; }),
        entries.end());
    std::reverse(entries.begin(), entries.end());
  }

  data::ReadOnlyFile file_;
  std::string prefix_;
  std::vector<Place> places_;
};

class Tar final : public ImageSamples {
 public:
  Tar(const TarSpec& spec, const data::DatasetRequest& request)
      : ImageSamples(std::make_shared<TarStore>(request.path, spec.prefix, known_classes(request)),
                     image_options(request), request.role) {}
};

const config::Registered<Tar, TarSpec> registered_tar{
    data::catalog(), "tar", "a tar archive of JPEG and PNG files in folders of their classes"};

}  // namespace
}  // namespace gputrain::datasets
