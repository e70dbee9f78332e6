// The jobs that `gputrain init` writes for data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "found_data.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/options.hpp"
#include "job_text.hpp"

namespace gputrain::app {

/// The published model of --model.
struct BaseModel {
  std::string name;              // as it was given
  std::filesystem::path folder;  // of its files
  std::string type;              // entry of the model catalog
};

/// Finds it. Throws Error(data) if it is not here, with the command that fetches it, or if it is of no known family.
BaseModel base_model(const std::string& name);

/// How the job is to begin.
struct Begin {
  std::optional<BaseModel> base;
  std::string quantize = {};  // entry of model.quantize; empty: none
  bool has_gpu = false;       // true: this machine has one
};

/// Returns the job for a text, or for records of texts. Throws Error(usage) if these need another base.
JobText text_job(const FoundData& found, const Begin& begin);

/// Returns what a user may not expect of this job.
std::vector<std::string> notes_on(const FoundData& found, const Begin& begin);

/// Changes a job for few samples of texts: smaller batches and more epochs. Returns whether it did.
bool fit_to_few(JobText& job, const FoundData& found, int64_t samples);

/// Returns the job for images, or for images with masks. `size`: that of the images if all have the same; 0: they
/// differ.
JobText image_job(const FoundData& found, const Begin& begin, const data::ImageExtent& size, int64_t samples);

/// Returns the name of published weights for images like these, which a job begins with no weights for; empty: they
/// are too small, or many enough.
std::string weights_for(const FoundData& found, const data::ImageExtent& size, int64_t samples);

}  // namespace gputrain::app
