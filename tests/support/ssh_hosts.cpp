#include "support/ssh_hosts.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/needs.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr auto kHostPause = std::chrono::milliseconds(50);  // between two looks at a host

Result command(std::vector<std::string> words) { return Program(std::move(words)).wait(30); }

void must(std::vector<std::string> words) {
  std::string text;
  for (const auto& word : words) text += word + " ";
  const Result result = command(std::move(words));
  if (result.exit_code != 0) throw std::runtime_error(text + ": " + result.err);
}

std::string command_of(pid_t process) {
  std::string text = read_file("/proc/" + std::to_string(process) + "/cmdline");
  for (char& c : text) c = c == '\0' ? ' ' : c;
  return text;
}

}  // namespace

std::string SshHosts::missing() {
  const std::string program =
      testing::missing_program({"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", "ip", "ss"});
  return program.empty() ? testing::no_own_hosts() : program;
}

SshHosts::SshHosts(int count)
    : prefix_("gt" + std::to_string(getpid())),
      subnet_("10.231." + std::to_string(getpid() % 250) + "."),
      count_(count) {
  try {
    fs::create_directories("/run/sshd");  // sshd needs it
    must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / "user"});
    must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / "host"});
    folder_.write("authorized_keys", read_file(folder_ / "user.pub"));
    must({"ip", "link", "add", prefix_ + "b", "type", "bridge"});
    must({"ip", "addr", "add", subnet_ + "254/24", "dev", prefix_ + "b"});
    must({"ip", "link", "set", prefix_ + "b", "up"});
    std::string config = "UserKnownHostsFile " + (folder_ / "known_hosts") +
                         "\nGlobalKnownHostsFile /dev/null\nIdentityFile " + (folder_ / "user") +
                         "\nIdentitiesOnly yes\nUser root\nLogLevel ERROR\n";
    std::string known;
    for (int host = 1; host <= count; ++host) {
      add_host(host);
      config += "Host h" + std::to_string(host) + "\n  HostName " + address_of(host) + "\n";
      known += address_of(host) + " " + read_file(folder_ / "host.pub");
    }
    folder_.write("known_hosts", known);
    folder_.write("ssh_config", config);
    const std::string wrapper =
        folder_.write("bin/ssh", "#!/bin/sh\nexec /usr/bin/ssh -F " + (folder_ / "ssh_config") + " \"$@\"\n");
    fs::permissions(wrapper, fs::perms::owner_all);
  } catch (...) {
    remove();
    throw;
  }
}

SshHosts::~SshHosts() { remove(); }

void SshHosts::add_host(int host) {
  const std::string name = name_of(host), outer = prefix_ + "v" + std::to_string(host);
  // A namespace has no DNS: let a lookup fail at once, not after the nameserver's timeout.
  fs::create_directories("/etc/netns/" + name);
  std::ofstream("/etc/netns/" + name + "/resolv.conf") << "nameserver 127.0.0.1\n";
  must({"ip", "netns", "add", name});
  must({"ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name});
  must({"ip", "link", "set", outer, "master", prefix_ + "b", "up"});
  must({"ip", "-n", name, "addr", "add", address_of(host) + "/24", "dev", "eth0"});
  must({"ip", "-n", name, "link", "set", "eth0", "up"});
  must({"ip", "-n", name, "link", "set", "lo", "up"});
  must({"ip", "-n", name, "route", "add", "default", "via", subnet_ + "254"});
  const std::string config = folder_.write(
      "sshd_config" + std::to_string(host),
      "ListenAddress " + address_of(host) + "\nHostKey " + (folder_ / "host") + "\nAuthorizedKeysFile " +
          (folder_ / "authorized_keys") +
          "\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile none\nLogLevel ERROR\nMaxStartups 100\n");
  servers_.push_back(std::make_unique<Program>(
      std::vector<std::string>{"ip", "netns", "exec", name, "/usr/sbin/sshd", "-D", "-e", "-f", config}));
  const auto latest = Clock::now() + testing::patience(std::chrono::seconds(10));
  while (command({"ip", "netns", "exec", name, "ss", "-Hltn", "sport", "=", ":22"}).out.empty()) {
    if (Clock::now() > latest || !servers_.back()->is_running())
      throw std::runtime_error("sshd does not start: " + servers_.back()->wait(1).err);
    std::this_thread::sleep_for(kHostPause);
  }
}

void SshHosts::remove() {
  for (int host = 1; host <= count_; ++host) {
    for (const pid_t process : processes_on(host)) kill(process, SIGKILL);
    command({"ip", "netns", "del", name_of(host)});
    std::error_code ignored;
    fs::remove_all("/etc/netns/" + name_of(host), ignored);
    command({"ip", "link", "del", prefix_ + "v" + std::to_string(host)});
  }
  servers_.clear();
  command({"ip", "link", "del", prefix_ + "b"});
}

std::map<std::string, std::string> SshHosts::environment() const {
  const char* path = std::getenv("PATH");
  return {{"PATH", (folder_ / "bin") + ":" + (path == nullptr ? "/usr/bin:/bin" : path)}};
}

void SshHosts::set_link(int host, bool is_up) const {
  must({"ip", "link", "set", prefix_ + "v" + std::to_string(host), is_up ? "up" : "down"});
}

pid_t SshHosts::server(int host) const { return processes_on(host).at(0); }

void SshHosts::change(int host, const std::vector<std::string>& command) const {
  std::vector<std::string> words{"nsenter", "-m", "-t", std::to_string(server(host))};
  words.insert(words.end(), command.begin(), command.end());
  must(std::move(words));
}

void SshHosts::forget_key_of(int host) const {
  std::istringstream lines(read_file(folder_ / "known_hosts"));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(address_of(host) + " ")) kept += line + "\n";
  }
  folder_.write("known_hosts", kept);
}

std::vector<pid_t> SshHosts::processes_on(int host) const {
  std::istringstream lines(command({"ip", "netns", "pids", name_of(host)}).out);
  std::vector<pid_t> processes;
  for (pid_t process = 0; lines >> process;) processes.push_back(process);
  return processes;
}

pid_t SshHosts::agent(int host) const {
  const auto latest = Clock::now() + testing::patience(std::chrono::seconds(10));
  while (Clock::now() < latest) {
    for (const pid_t process : processes_on(host)) {
      if (command_of(process) == gputrain_path() + " agent ") return process;
    }
    std::this_thread::sleep_for(kHostPause);
  }
  throw std::runtime_error("there is no agent on " + name_of(host));
}

std::vector<std::string> SshHosts::commands() const {
  std::vector<std::string> commands;
  for (int host = 1; host <= count_; ++host) {
    for (const pid_t process : processes_on(host)) {
      const std::string text = command_of(process);
      if (!text.empty() && text.find("sshd") == std::string::npos)
        commands.push_back("h" + std::to_string(host) + ": " + text);
    }
  }
  return commands;
}

bool SshHosts::are_empty_within(double seconds) const {
  const auto latest = Clock::now() + std::chrono::duration<double>(seconds);
  while (!commands().empty()) {
    if (Clock::now() > latest) return false;
    std::this_thread::sleep_for(kHostPause);
  }
  return true;
}

}  // namespace gputrain::testing_support
