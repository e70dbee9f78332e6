// Samples in files that the processes of a host share, so that a host makes its tokens once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "text_samples.hpp"

namespace gputrain::records {

/// Returns $GPUTRAIN_SAMPLES, or $XDG_CACHE_HOME/gputrain/samples, or ~/.cache/gputrain/samples; empty: none are kept
/// (GPUTRAIN_SAMPLES is empty, or there is no home).
std::filesystem::path samples_folder();

/// Names samples by all that they are made from: the files with their format, times and some of their content, the
/// tokenizer's files, the settings of texts, the limits of tokens in a sample, the target, the signature of the
/// training data, and this program. Empty: they are made anew each time, because there is little text, the tokenizer is
/// made from it or its files are not known, or a template has the time of day.
std::string samples_key(const data::DatasetRequest& request, const std::string& format,
                        const std::vector<std::string>& files, const tokenizers::Tokenizer* tokenizer, int64_t most);

/// Returns the samples of this key from its file; if there is none, makes them and writes it. One of several processes
/// makes them while the others wait. Without room on the disk, or locks, each has its own in memory. Old files go when
/// all together are too large.
std::shared_ptr<const MadeSamples> shared_samples(const std::filesystem::path& folder, const std::string& key,
                                                  const std::function<MadeSamples()>& make,
                                                  int64_t most_bytes = int64_t{64} << 30);

/// Writes the file. Throws if it cannot be written.
void write_samples(const std::filesystem::path& path, const std::string& key, const MadeSamples& made);
/// Returns null if the file is not whole, or of another key.
std::shared_ptr<const MadeSamples> mapped_samples(const std::filesystem::path& path, const std::string& key);

}  // namespace gputrain::records
