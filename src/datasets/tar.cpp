// Plain tar archives of JPEG and PNG files, read in place: a folder per class or, as in WebDataset, a label file for
// each image.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/image_samples.hpp"
#include "tar_index.hpp"

namespace gputrain::datasets {
namespace {

struct TarSpec {
  std::string prefix;

  static void describe(config::Description<TarSpec>& d) {
    d.summary(
        "plain tar archives of images, read in place, never unpacked: one folder for each class, or, as in WebDataset, "
        "a "
        "NAME.cls with the number of the class for each NAME.jpg; one path, or several by a pattern: "
        "'train-{000..146}.tar', 'train-*.tar'");
    d.key("prefix", &TarSpec::prefix, "a folder inside the archive that holds the classes, for instance train");
  }
};

constexpr int32_t kMostClasses = 1 << 20;

/// Returns the key of a sample in WebDataset: the name up to the first dot after the last slash.
std::string_view key_of(std::string_view name) { return name.substr(0, name.find('.', name.rfind('/') + 1)); }

/// Returns the role of the file in its sample: "jpg", "cls", "seg.png".
std::string part_of(std::string_view name) {
  return lower_case(name.substr(std::min(key_of(name).size() + 1, name.size())));
}

/// Returns whether the image is another part of the sample, such as a mask: NAME.seg.png.
bool is_other_part(std::string_view name) { return name.find('.', key_of(name).size() + 1) != std::string_view::npos; }

/// Sorts by name. If names repeat, keeps the last entry, as unpacking would, and returns the others.
LeftOut keep_last_of_each_name(std::vector<TarEntry>& entries) {
  LeftOut replaced;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 0; i + 1 < entries.size(); ++i) {
    if (entries[i].name == entries[i + 1].name) replaced.add(entries[i].name);
  }
  std::reverse(entries.begin(), entries.end());
  entries.erase(
      std::unique(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; }),
      entries.end());
  std::reverse(entries.begin(), entries.end());
  return replaced;
}

class TarStore final : public ImageStore {
 public:
  TarStore(const std::string& path, std::string prefix, const std::vector<std::string>& known)
      : prefix_(std::move(prefix)) {
    while (prefix_.ends_with('/')) prefix_.pop_back();
    if (!prefix_.empty()) prefix_ += '/';
    for (const std::string& file : expand_pattern(path)) files_.emplace_back(file);
    Content content;
    for (size_t file = 0; file < files_.size(); ++file) read_index(file, content);
    const std::string where = prefix_.empty() ? path : path + ": " + prefix_;
    warn_of_unread_images(where, content.unread);
    if (!content.has_labels) warn_of_classes_without_images(where, content);
    content.labels_alone.warn(where, "label", "without an image");
    if (content.has_labels && !content.names.empty()) {
      set_labels(content.names, std::move(content.labels), known, where);
    } else {
      set_names(content.names, known, where);
    }
  }

  std::string full_name(int64_t index) const override {
    const Location& location = locations_[static_cast<size_t>(index)];
    return files_[location.file].path() + ": " + prefix_ + std::string(name(index));
  }

  void read(int64_t index, std::vector<std::byte>& bytes) const override {
    const auto [offset, size, file] = locations_[static_cast<size_t>(index)];
    bytes.resize(static_cast<size_t>(size));
    files_[file].read(offset, bytes);
  }

 protected:
  data::Content content(int64_t index) const override {
    const Location& place = locations_[static_cast<size_t>(index)];
    return {place.size, [this, &place](int64_t offset, std::span<std::byte> to) {
              files_[place.file].read(place.offset + offset, to);
            }};
  }

 private:
  struct Location {
    int64_t offset, size;
    size_t file;
  };

  struct Label {
    int32_t number;
    bool has_image = false;
  };
  using Labels = std::map<std::string, Label>;  // labels by key_of()

  struct Shard {
    std::vector<TarEntry> images;
    std::vector<std::string> unread;
    std::set<std::string> folders;  // first folder of each path
    LeftOut replaced;
    Labels labels;
    bool has_labels = false;  // true also where their names have further dots
  };

  struct Content {
    std::vector<std::string> names;
    std::vector<int32_t> labels;
    bool has_labels = false;
    std::set<std::string> folders;
    LeftOut unread, labels_alone;
  };

  [[noreturn]] void refuse(size_t file, const std::string& name, const std::string& what,
                           const std::string& hint = {}) const {
    const std::string location = prefix_ + name;
    throw Error(ExitCode::data,
                {.what = what, .where = files_[file].path() + (location.empty() ? "" : ": " + location), .hint = hint});
  }

  /// Returns whether to ignore it, as in folders: files that macOS adds, .ipynb_checkpoints.
  static bool is_hidden(std::string_view name) {
    for (size_t begin = 0; begin < name.size();) {
      const std::string_view part = name.substr(begin, name.find('/', begin) - begin);
      if (part.size() > 1 && part[0] == '.' && part[1] != '.') return true;
      begin += part.size() + 1;
    }
    return false;
  }

  /// Warns, because a missing class would otherwise only show as other numbers of the classes after it.
  static void warn_of_classes_without_images(const std::string& where, const Content& content) {
    std::set<std::string_view> classes;
    for (const std::string_view name : content.names) classes.insert(name.substr(0, name.find('/')));
    LeftOut empty;
    for (const std::string& folder : content.folders)
      if (!classes.contains(folder)) empty.add(folder);
    if (!classes.empty()) empty.warn(where, "folder", "without an image (.jpg, .jpeg, .png), which is no class");
  }

  /// Lists the images and labels of an archive, and the images that nothing here reads.
  Shard list(size_t file) const {
    Shard shard;
    visit_tar(files_[file], [&](TarEntry&& entry) {
      if (!entry.name.starts_with(prefix_)) return;
      entry.name.erase(0, prefix_.size());
      if (is_hidden(entry.name)) return;
      if (const size_t slash = entry.name.find('/'); slash != std::string::npos && slash > 0)
        shard.folders.insert(entry.name.substr(0, slash));
      if (entry.is_folder) return;
      if (is_unread_image_name(entry.name)) shard.unread.push_back(entry.name);
      const std::string part = part_of(entry.name);
      const bool is_label = part == "cls" || part.ends_with(".cls");
      if (!is_label && !is_image_name(entry.name)) return;
      check(file, entry);
      shard.has_labels = shard.has_labels || is_label;
      if (!is_label) {
        shard.images.push_back(std::move(entry));
      } else if (part == "cls") {
        shard.labels[std::string(key_of(entry.name))] = {.number = label_in(file, entry)};
      }
    });
    shard.replaced = keep_last_of_each_name(shard.images);
    const auto is_mask = [&shard](std::string_view name) {
      return is_other_part(name) && shard.labels.contains(std::string(key_of(name)));
    };
    std::erase_if(shard.images, [&](const TarEntry& entry) { return is_mask(entry.name); });
    std::erase_if(shard.unread, is_mask);
    return shard;
  }

  void read_index(size_t file, Content& content) {
    Shard shard = list(file);
    shard.replaced.warn(files_[file].path(), "image", "whose name comes again later in the archive");
    if (!content.names.empty() && !shard.images.empty() && shard.has_labels != content.has_labels)
      refuse(file, "",
             std::string(shard.has_labels ? ".cls" : "no .cls") + " beside the images, unlike in earlier files");
    content.has_labels = content.has_labels || shard.has_labels;
    for (TarEntry& entry : shard.images) {
      if (content.has_labels)
        content.labels.push_back(label_of(file, entry, shard.labels));
      else
        check_folder(file, entry);
      content.names.push_back(std::move(entry.name));
      locations_.push_back({entry.offset, entry.size, file});
    }
    content.folders.merge(shard.folders);
    const std::string where = files_.size() > 1 ? files_[file].path() + ": " : "";
    for (const std::string& name : shard.unread) content.unread.add(where + name);
    for (const auto& [key, label] : shard.labels)
      if (!label.has_image) content.labels_alone.add(where + key + ".cls");
  }

  int32_t label_of(size_t file, const TarEntry& image, Labels& labels) const {
    const std::string key(key_of(image.name));
    const auto label = labels.find(key);
    if (label == labels.end())
      refuse(file, image.name, "an image without a label: there is no " + key + ".cls",
             is_other_part(image.name) ? "in WebDataset a sample's name ends at its first dot: rename it, and its label"
                                       : "");
    label->second.has_image = true;
    return label->second.number;
  }

  void check_folder(size_t file, const TarEntry& image) const {
    if (image.name.find('/') != std::string::npos) return;
    refuse(file, image.name, "an image outside of class folders",
           "put it into a folder of its class or, as in WebDataset, add " + std::string(key_of(image.name)) +
               ".cls beside it with the number of its class");
  }

  void check(size_t file, const TarEntry& entry) const {
    const std::string slashed = "/" + entry.name + "/";
    if (entry.name.starts_with('/') || slashed.find("/../") != std::string::npos)
      refuse(file, entry.name, "an unsafe name in the archive: it points outside");
    if (entry.is_link)
      refuse(file, entry.name, "a link instead of an image",
             "write the archive with tar --dereference --hard-dereference");
    if (entry.size > kMostImageBytes)
      refuse(file, entry.name, "an image file of " + std::to_string(entry.size) + " bytes");
  }

  /// Returns the number in a .cls, without surrounding whitespace.
  int32_t label_in(size_t file, const TarEntry& entry) const {
    constexpr int64_t kMostBytes = 64;
    std::string text(static_cast<size_t>(std::min(entry.size, kMostBytes)), '\0');
    files_[file].read(entry.offset, std::as_writable_bytes(std::span(text)));
    const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const size_t end = text.find_last_not_of(" \t\r\n") + 1;  // npos + 1 is 0
    int32_t label = -1;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + std::max(begin, end), label);
    if (entry.size > kMostBytes || error != std::errc() || rest != text.data() + end || label < 0)
      refuse(file, entry.name, "the class is not a number from 0 on");
    if (label >= kMostClasses)
      refuse(file, entry.name,
             "class " + std::to_string(label) + "; at most " + grouped(kMostClasses) + " classes are supported");
    return label;
  }

  std::vector<data::ReadOnlyFile> files_;
  std::string prefix_;
  std::vector<Location> locations_;
};

class Tar final : public ImageSamples {
 public:
  Tar(const TarSpec& spec, const data::DatasetRequest& request)
      : ImageSamples(std::make_shared<TarStore>(request.path, spec.prefix, known_classes(request)),
                     image_options(request), request.role) {
    request.tell_files({request.path, spec.prefix});
  }
};

const config::Registered<Tar, TarSpec> registered_tar{
    data::catalog(), "tar",
    "tar archives of JPEG and PNG files in folders of their classes, or with .cls files (WebDataset)"};

}  // namespace
}  // namespace gputrain::datasets
