#include "retries.hpp"

#include <chrono>
#include <thread>

#include "gputrain/core/error.hpp"

namespace gputrain::hub {

void Retries::wait(int failures, const std::string& why) const {
  if (failures == kTries) {
    throw Error(ExitCode::environment,
                {.what = why + " (tried " + std::to_string(kTries) + " times)",
                 .where = url_,
                 .hint = "check the network, https_proxy and HF_ENDPOINT; what has arrived is kept, and the next "
                         "call goes on from there"});
  }
  if (how_.on_trouble) how_.on_trouble(why + "; try " + std::to_string(failures + 1) + " of " + std::to_string(kTries));
  std::this_thread::sleep_for(std::chrono::duration<double>(how_.first_pause_seconds * (1 << (failures - 1))));
}

void Retries::run(const std::function<void()>& action, const std::function<uint64_t()>& progress) {
  uint64_t before = progress ? progress() : 0;
  for (int failures = 0;;) {
    try {
      return action();
    } catch (const Interruption& interruption) {
      const uint64_t now = progress ? progress() : 0;
      if (now > before) failures = 0;
      before = now;
      wait(++failures, interruption.what());
    }
  }
}

Reply ask_patiently(Http& http, const HttpRequest& request, const Fetching& how) {
  Reply reply;
  Retries(request.url, how).run([&] { reply = http.ask(request); });
  return reply;
}

}  // namespace gputrain::hub
