// Download of a published model from the Hugging Face Hub into its cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gputrain/hub/cache.hpp"
#include "gputrain/net/client.hpp"

namespace gputrain::hub {

/// Progress of a file.
struct FetchProgress {
  std::string file;
  uint64_t received = 0;  // bytes, including those of an earlier call
  uint64_t size = 0;      // bytes; 0: unknown
};

struct Fetching {
  ModelName model;
  std::string endpoint = "https://huggingface.co";
  std::string token = {};  // empty: none
  std::filesystem::path cache;
  std::string offline = {};  // variable that forbids requests; empty: none
  bool takes_weights = true;  // false: only the files that describe the model
  std::function<void(const FetchProgress&)> on_progress = {};
  net::Retrying retrying = {  // `on_trouble` is also told while another process fetches
      .hint =
          "check the network, https_proxy and HF_ENDPOINT; what has arrived is kept, and the next call goes on from "
          "there"};
};

struct FetchedFile {
  std::string name;
  uint64_t bytes = 0;
  bool was_here = false;
};

struct Fetched {
  std::filesystem::path snapshot;  // folder to read the model from
  std::string commit;
  std::vector<FetchedFile> files;
};

/// Reads the environment: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE, HF_ENDPOINT, HF_TOKEN or the file of `hf auth login`,
/// and the cache's place. Throws Error(usage) for an invalid endpoint or token.
Fetching fetching_from_environment(const ModelName& model, const Lookup& lookup);

/// Fetches all files that describe the model, and its weights in safetensors. Files that are here are not fetched again, and
/// an incomplete one is continued. Offline, returns what the cache has. Throws Error(data) for a model or revision that
/// the Hub does not have or does not give, and Error(environment) if the network or the disk fails.
Fetched fetch(const Fetching& how, net::Client client = net::Client());

}  // namespace gputrain::hub
