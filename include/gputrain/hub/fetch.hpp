// Fetches a published model from the Hugging Face Hub into its cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gputrain/hub/cache.hpp"
#include "gputrain/net/client.hpp"

namespace gputrain::hub {

/// How far a file has come.
struct FetchProgress {
  std::string file;
  uint64_t received = 0;  // bytes, with those of an earlier call
  uint64_t size = 0;      // bytes; 0: unknown
};

struct Fetching {
  ModelName model;
  std::string endpoint = "https://huggingface.co";
  std::string token = {};  // empty: none
  std::filesystem::path cache;
  std::string offline = {};  // the variable that says that nobody is to be asked; empty: none does
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
  std::filesystem::path snapshot;  // the folder to read the model from
  std::string commit;
  std::vector<FetchedFile> files;
};

/// What the environment says: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE, HF_ENDPOINT, HF_TOKEN or the file of `hf auth
/// login`, and the cache's place. Throws Error(usage) for an endpoint or a token that is none.
Fetching fetching_from_environment(const ModelName& model, const Lookup& lookup);

/// Fetches the weights in safetensors and all that describes them. Files that are here are not fetched again, and an
/// incomplete one is continued. Offline, gives what the cache has. Throws Error(data) for a model or revision that the
/// Hub does not have or does not give, and Error(environment) for everything that the network or the disk refuses.
Fetched fetch(const Fetching& how, net::Client client = net::Client());

}  // namespace gputrain::hub
