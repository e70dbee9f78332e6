// Page that shows images as a model gets them.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::app {

struct ContactSheet {
  std::string title;          // title of the page
  std::string text;           // text below the title
  int64_t images = 24;        // samples, spread evenly over the data
  int64_t epochs = 3;         // augmented versions of each sample besides the plain one; 0: none
  uint64_t seed = 0;          // seed of the job, so that the versions are those of training
  data::MixOptions mix = {};  // mixing of images; on: micro-batches of training are shown, too
};

/// Writes the page, HTML that needs no other file: for each sample its name, its class, the image as an evaluation
/// reads it, and as training does in its first epochs; then, if images are mixed, four micro-batches. A sample that
/// cannot be read is shown with the reason. The dataset's samples must be images.
std::string contact_sheet(const data::Dataset& dataset, const ContactSheet& sheet);

}  // namespace gputrain::app
