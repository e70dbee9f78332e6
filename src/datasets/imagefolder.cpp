// A folder with one subfolder of JPEG and PNG files per class.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "file_list.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "image_samples.hpp"

namespace gputrain::datasets {
namespace {

struct ImageFolderSpec {
  std::string prefix;

  static void describe(config::Description<ImageFolderSpec>& d) {
    d.summary("one folder of JPEG and PNG files for each class; classes are numbered in order of their names");
    d.key("prefix", &ImageFolderSpec::prefix, "a folder inside `path` that holds the classes");
  }
};

class FolderStore final : public ImageStore {
 public:
  FolderStore(std::string root, const std::vector<std::string>& known) : root_(std::move(root)) {
    std::error_code ignored;
    if (!std::filesystem::exists(root_, ignored)) data::throw_missing(root_, "a folder of images");
    if (!std::filesystem::is_directory(root_, ignored))
      throw Error(ExitCode::data, {.what = "this is a file; format imagefolder needs a folder",
                                   .where = root_,
                                   .hint = "format: tar for an archive"});
    std::vector<std::string> names = list_files(root_, {});
    warn_of_other_images(names);
    std::erase_if(names, [](const std::string& name) { return !is_image_name(name); });
    if (!names.empty()) refuse_classes_without_images(names);
    for (const std::string& name : names)
      if (name.find('/') == std::string::npos)
        throw Error(ExitCode::data, {.what = "the image " + name + " is not in a class folder", .where = root_});
    set_names(names, known, root_);
  }

  std::string full_name(int64_t index) const override { return root_ + "/" + std::string(name(index)); }

  void read(int64_t index, std::vector<std::byte>& bytes) const override {
    const data::ReadOnlyFile file(full_name(index));
    if (file.size() > kMostImageBytes)
      throw Error(ExitCode::data,
                  {.what = "an image file of " + std::to_string(file.size()) + " bytes", .where = file.path()});
    bytes.resize(static_cast<size_t>(file.size()));
    file.read(0, bytes);
  }

 protected:
  data::Content content(int64_t index) const override {
    const auto file = std::make_shared<const data::ReadOnlyFile>(full_name(index));
    return {file->size(), [file](int64_t offset, std::span<std::byte> to) { file->read(offset, to); }};
  }

 private:
  /// Without a warning, ignored images would only show as a lower score.
  void warn_of_other_images(const std::vector<std::string>& names) const {
    const auto is_other = [](const std::string& name) { return is_unread_image_name(name); };
    const auto first = std::find_if(names.begin(), names.end(), is_other);
    if (first == names.end()) return;
    const auto count = std::count_if(first, names.end(), is_other);
    log::warning(root_ + ": left out " +
                 (count == 1 ? "1 image that is neither JPEG nor PNG: "
                             : grouped(count) + " images that are neither JPEG nor PNG, such as ") +
                 *first);
  }

  /// `names` must be sorted. Throws, because a missing class would change the numbers of other classes.
  void refuse_classes_without_images(const std::vector<std::string>& names) const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root_, error)) {
      const std::string folder = entry.path().filename().string();
      if (folder.starts_with('.') || !entry.is_directory(error)) continue;
      const auto image = std::lower_bound(names.begin(), names.end(), folder + "/");
      if (image != names.end() && image->starts_with(folder + "/")) continue;
      const bool is_empty = std::filesystem::is_empty(entry.path(), error);
      throw Error(ExitCode::data, {.what = is_empty ? "the folder of this class is empty"
                                                    : "the folder of this class has no images (.jpg, .jpeg, .png)",
                                   .where = entry.path().string(),
                                   .hint = "put its images there, or remove the folder"});
    }
  }

  std::string root_;
};

class ImageFolder final : public ImageSamples {
 public:
  ImageFolder(const ImageFolderSpec& spec, const data::DatasetRequest& request)
      : ImageSamples(std::make_shared<FolderStore>(
                         spec.prefix.empty() ? request.path : request.path + "/" + spec.prefix, known_classes(request)),
                     image_options(request), request.role) {
    request.tell_files({request.path, spec.prefix});
  }
};

const config::Registered<ImageFolder, ImageFolderSpec> registered_imagefolder{
    data::catalog(), "imagefolder", "folders of JPEG and PNG files, one for each class"};

}  // namespace
}  // namespace gputrain::datasets
