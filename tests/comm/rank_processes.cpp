#include "comm/rank_processes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "support/sanitizers.hpp"
#include "support/spawn.hpp"
#include "support/warm_server.hpp"

extern char** environ;

namespace gputrain::testing {
namespace {

using testing_support::WarmRequest;
using Clock = std::chrono::steady_clock;

std::map<std::string, std::function<int()>>& bodies() {
  static std::map<std::string, std::function<int()>> all;
  return all;
}

std::string own_path() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) throw std::runtime_error("no /proc/self/exe");
  return {path, static_cast<size_t>(length)};
}

std::vector<std::string> merged_environment(const Environment& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : changes) merged.push_back(name + '=' + value);
  return merged;
}

/// The socket of the process that ranks are copies of; -1 if they start from disk.
int rank_server = -1;

int run_body(int, char** arguments, char**) {
  try {
    return bodies().at(arguments[2])();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unexpected: %s\n", error.what());
    return 99;
  }
}

/// Makes the process that ranks are copies of, before tests start threads. Not with a sanitizer or a GPU, whose
/// runtimes may not like to be copied.
void start_rank_server() {
  std::array<int, 2> ends{};
  if (kIsSanitized || std::getenv("GPUTRAIN_COLD_STARTS") != nullptr || ::access("/dev/nvidiactl", F_OK) == 0) return;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    testing_support::serve(ends[1], run_body);
  }
  ::close(ends[1]);
  if (pid > 0 && WarmRequest::answer_of(ends[0]) == 0) rank_server = ends[0];
}

}  // namespace

struct RankProcesses::Process {
  pid_t id = -1;
  int output = -1;  // read end of the pipe for stdout and stderr
  Clock::time_point start = Clock::now();
  RankResult result;
  bool ended = false;

  Process(const std::vector<std::string>& argv, const Environment& environment, int server = -1) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    output = ends[0];
    const std::array<int, 3> streams{STDIN_FILENO, ends[1], ends[1]};
    const auto variables = merged_environment(environment);
    if (server >= 0) {
      WarmRequest request{.arguments = argv.size(), .words = {std::filesystem::current_path()}, .streams = streams};
      for (const auto* each : {&argv, &variables})
        request.words.insert(request.words.end(), each->begin(), each->end());
      id = request.start(server);
    }
    if (id < 0) id = testing_support::spawn(argv, variables, streams);
    ::close(ends[1]);
  }

  // Reads output for at most `limit`; collects the exit status when the output ends.
  void read_some(std::chrono::milliseconds limit) {
    pollfd ready{output, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return;
    char buffer[4096];
    const ssize_t count = ::read(output, buffer, sizeof buffer);
    if (count > 0) {
      result.output.append(buffer, static_cast<size_t>(count));
      return;
    }
    int status = 0;
    ::waitpid(id, &status, 0);
    ::close(output);
    ended = true;
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
};

RankBody::RankBody(const char* name, std::function<int()> body) { bodies().emplace(name, std::move(body)); }

RankProcesses::RankProcesses(const std::string& body, int world_size, const Environment& extra)
    : body_(body), world_size_(world_size), common_(extra) {
  common_.emplace("MASTER_ADDR", "127.0.0.1");
  common_.emplace("MASTER_PORT", std::to_string(free_port()));
  common_.emplace("OMP_NUM_THREADS", "1");
  common_.emplace("START_SECONDS", "30");
  for (int rank = 0; rank < world_size; ++rank) start(rank, {});
}

RankProcesses::~RankProcesses() {
  for (Process& process : processes_) {
    if (!process.ended) ::kill(process.id, SIGKILL);
    while (!process.ended) process.read_some(std::chrono::seconds(1));
  }
}

void RankProcesses::start(int rank, const Environment& extra) {
  Environment environment = extra;
  environment.insert(common_.begin(), common_.end());
  environment.emplace("RANK", std::to_string(rank));
  environment.emplace("WORLD_SIZE", std::to_string(world_size_));
  const int server = environment.contains("GPUTRAIN_COLD_STARTS") ? -1 : rank_server;
  processes_.emplace_back(std::vector<std::string>{own_path(), "--body", body_}, environment, server);
}

void RankProcesses::start_another(int rank, const Environment& extra) { start(rank, extra); }

void RankProcesses::kill(int index, int signal) { ::kill(processes_.at(static_cast<size_t>(index)).id, signal); }

pid_t RankProcesses::process(int index) const { return processes_.at(static_cast<size_t>(index)).id; }

void RankProcesses::wait_for_output(int index, const std::string& text) {
  Process& process = processes_.at(static_cast<size_t>(index));
  const auto give_up = Clock::now() + patience(std::chrono::seconds(60));
  while (process.result.output.find(text) == std::string::npos) {
    if (process.ended || Clock::now() > give_up) throw std::runtime_error("never said '" + text + "'");
    process.read_some(std::chrono::milliseconds(100));
  }
}

void RankProcesses::wait_for_end(int index) {
  Process& process = processes_.at(static_cast<size_t>(index));
  const auto give_up = Clock::now() + patience(std::chrono::seconds(60));
  while (!process.ended && Clock::now() < give_up) process.read_some(std::chrono::milliseconds(100));
}

std::vector<RankResult> RankProcesses::finish(std::chrono::seconds limit) {
  const auto give_up = Clock::now() + patience(limit);
  std::vector<RankResult> results;
  for (bool all_ended = false; !all_ended;) {
    all_ended = true;
    for (Process& process : processes_) {
      if (process.ended) continue;
      if (Clock::now() > give_up) ::kill(process.id, SIGKILL);
      process.read_some(std::chrono::milliseconds(5));
      all_ended = all_ended && process.ended;
    }
  }
  for (Process& process : processes_) results.push_back(process.result);
  return results;
}

RankResult run_program(const std::vector<std::string>& argv, const Environment& environment,
                       std::chrono::seconds limit) {
  RankProcesses::Process process(argv, environment);
  const auto give_up = Clock::now() + patience(limit);
  while (!process.ended) {
    if (Clock::now() > give_up) ::kill(process.id, SIGKILL);
    process.read_some(std::chrono::milliseconds(100));
  }
  return process.result;
}

comm::ProcessGroups join(std::chrono::milliseconds deadline, at::Device device) {
  const auto number = [](const char* name, int otherwise = 30) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  const auto text_of = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  comm::Rendezvous at;
  at.rank = number("RANK");
  at.world_size = number("WORLD_SIZE");
  at.local_rank = at.rank;
  at.local_world_size = number("LOCAL_WORLD_SIZE", at.world_size);
  at.master_address = std::getenv("MASTER_ADDR");
  at.master_port = static_cast<uint16_t>(number("MASTER_PORT"));
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  at.store_is_running = agent != nullptr && std::string(agent) == "True";
  if (const char* job = std::getenv("JOB")) at.job = job;
  const auto tell = [](const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  };
  return {at,
          {.device = device,
           .gpu = text_of("GPU"),
           .deadline = deadline,
           .start_deadline = std::chrono::seconds(number("START_SECONDS")),
           .patience = std::chrono::milliseconds(500),
           .on_waiting = tell,
           .program = text_of("PROGRAM"),
           .run = text_of("RUN"),
           .silence = std::chrono::milliseconds(number("SILENCE_MILLISECONDS", 15'000)),
           .grace = std::chrono::milliseconds(number("GRACE_MILLISECONDS", 8'000))}};
}

}  // namespace gputrain::testing

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--body") return gputrain::testing::run_body(argc, argv, environ);
  ::testing::InitGoogleTest(&argc, argv);
  gputrain::testing::start_rank_server();
  return RUN_ALL_TESTS();
}
