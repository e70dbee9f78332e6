// A folder with one subfolder of JPEG and PNG files per class.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/image_samples.hpp"

namespace gputrain::datasets {
namespace {

struct ImageFolderSpec {
  std::string prefix;

  static void describe(config::Description<ImageFolderSpec>& d) {
    d.summary("one folder of JPEG and PNG files for each class; classes are numbered in order of their names");
    d.key("prefix", &ImageFolderSpec::prefix, "a folder inside `path` that holds the classes").path();
  }
};

class FolderStore final : public ImageStore {
 public:
  FolderStore(std::string root, const data::DatasetRequest& request) : root_(std::move(root)) {
    std::error_code ignored;
    if (!std::filesystem::exists(root_, ignored)) data::throw_missing(root_, "a folder of images");
    if (!std::filesystem::is_directory(root_, ignored))
      throw Error(ExitCode::data, {.what = "this is a file; format imagefolder needs a folder",
                                   .where = root_,
                                   .hint = "format: tar for an archive"});
    FolderListing listing = list_folder(root_, {}, request.own_folders);
    std::vector<std::string>& names = listing.files;
    keep_images(names, root_);
    if (!names.empty()) refuse_classes_without_images(listing);
    for (const std::string& name : names)
      if (name.find('/') == std::string::npos)
        throw Error(ExitCode::data, {.what = "the image " + name + " is not in a class folder", .where = root_});
    set_names(names, known_classes(request), root_);
  }

  std::string full_name(int64_t index) const override { return root_ + "/" + std::string(name(index)); }

  void read(int64_t index, std::vector<std::byte>& bytes) const override { read_image_file(full_name(index), bytes); }

 protected:
  data::Content content(int64_t index) const override { return content_of_file(full_name(index)); }

 private:
  /// Throws, because a missing class would change the numbers of other classes.
  void refuse_classes_without_images(const FolderListing& listing) const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root_, error)) {
      const std::string folder = entry.path().filename().string() + "/";
      if (folder.starts_with('.')) continue;
      if (!entry.exists(error))
        refuse(entry, "a link to nowhere instead of the folder of a class", "mount its target, or remove the link");
      if (!entry.is_directory(error) || has_any_in(folder, listing.files) || has_any_in(folder, listing.run_folders))
        continue;
      refuse(entry,
             std::filesystem::is_empty(entry.path(), error)
                 ? "the folder of this class is empty"
                 : "the folder of this class has no images (.jpg, .jpeg, .png)",
             "put its images there, or remove the folder");
    }
  }

  /// Returns whether one of the sorted paths lies in the folder.
  static bool has_any_in(const std::string& folder, const std::vector<std::string>& paths) {
    const auto path = std::lower_bound(paths.begin(), paths.end(), folder);
    return path != paths.end() && path->starts_with(folder);
  }

  [[noreturn]] static void refuse(const std::filesystem::directory_entry& entry, const std::string& what,
                                  const std::string& hint) {
    throw Error(ExitCode::data, {.what = what, .where = entry.path().string(), .hint = hint});
  }

  std::string root_;
};

class ImageFolder final : public ImageSamples {
 public:
  ImageFolder(const ImageFolderSpec& spec, const data::DatasetRequest& request)
      : ImageSamples(std::make_shared<FolderStore>(
                         spec.prefix.empty() ? request.path : request.path + "/" + spec.prefix, request),
                     image_options(request), request.role) {
    request.tell_files({request.path, spec.prefix});
  }
};

const config::Registered<ImageFolder, ImageFolderSpec> registered_imagefolder{
    data::catalog(), "imagefolder", "folders of JPEG and PNG files, one for each class"};

}  // namespace
}  // namespace gputrain::datasets
