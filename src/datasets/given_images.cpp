#include "gputrain/datasets/given_images.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/image_samples.hpp"

namespace gputrain::datasets {
namespace {

class GivenFiles final : public ImageStore {
 public:
  GivenFiles(const std::vector<std::string>& files, const std::vector<std::string>& class_names, Target target) {
    if (target == Target::number || target == Target::labels)
      set_rows(files, std::vector<float>(files.size() * class_names.size(), 0), class_names);
    else
      set_labels(files, std::vector<int32_t>(files.size(), 0), class_names, "");
  }

  std::string full_name(int64_t index) const override { return std::string(name(index)); }
  void read(int64_t index, std::vector<std::byte>& bytes) const override { read_image_file(full_name(index), bytes); }

 protected:
  data::Content content(int64_t index) const override { return content_of_file(full_name(index)); }
};

/// Adds a file, or those of a folder. Throws Error for a path that is neither.
void add_images(const std::string& path, std::vector<std::string>& files) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) data::throw_missing(path, "an image, or a folder of images");
  if (!std::filesystem::is_directory(path, ignored)) {
    if (!is_image_file(path)) throw Error(ExitCode::data, {.what = "neither a JPEG nor a PNG image", .where = path});
    files.push_back(path);
    return;
  }
  std::vector<std::string> names = list_folder(path, {}, {}).files;
  keep_images(names, path);
  for (const std::string& name : names) files.push_back((std::filesystem::path(path) / name).string());
}

}  // namespace

GivenImages image_files(const std::vector<std::string>& paths) {
  GivenImages given;
  std::exception_ptr first;
  for (const std::string& path : paths) {
    try {
      add_images(path, given.files);
    } catch (const Error& other) {
      if (!first) first = std::current_exception();
      given.others.emplace_back(other.what());
    }
  }
  if (given.files.empty() && first) std::rethrow_exception(first);
  if (given.files.empty())
    throw Error(ExitCode::data, {.what = "there are no images (.jpg, .jpeg, .png)", .where = paths.front()});
  return given;
}

std::shared_ptr<const data::Dataset> given_images(const std::vector<std::string>& files,
                                                  const data::ImageOptions& options,
                                                  const std::vector<std::string>& class_names, Target target) {
  return std::make_shared<ImageSamples>(std::make_shared<GivenFiles>(files, class_names, target), options,
                                        data::Split::val);
}

}  // namespace gputrain::datasets
