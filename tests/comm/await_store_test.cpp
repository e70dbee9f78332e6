// What a rank says and does until it has found rank 0.
#include "await_store.hpp"

#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "store_rendezvous.hpp"
#include "support/ports.hpp"

namespace {
constexpr const char* kSlowName = "slow.invalid";
constexpr const char* kLateName = "late.invalid";  // known from the third question on
constexpr const char* kOwnName = "own.invalid";    // as Debian writes it into /etc/hosts
std::promise<void> name_servers_answer;
int questions = 0;
}  // namespace

/// Stands in for the system's: one name takes until the test lets it go.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  if (name != nullptr && std::string(name) == kSlowName) {
    name_servers_answer.get_future().wait();
    return EAI_NONAME;
  }
  if (name != nullptr && std::string(name) == kLateName && ++questions <= 2) return EAI_NONAME;
  if (name != nullptr && (std::string(name) == kLateName || std::string(name) == kOwnName)) name = "127.0.1.1";
  static const auto of_system = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return of_system(name, service, hints, found);
}

namespace gputrain::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

Rendezvous second_of_two(const std::string& address, int port) {
  return {.rank = 1,
          .world_size = 2,
          .local_rank = 1,
          .local_world_size = 2,
          .master_address = address,
          .master_port = static_cast<uint16_t>(port)};
}

/// The error of a rank that waits for a store, and what it says meanwhile.
struct Vain {
  ExitCode code = ExitCode::done;
  std::string error;
  std::vector<std::string> told;
};

Vain wait_in_vain(const std::string& address, int port) {
  Vain vain;
  const GroupOptions options{.start_deadline = milliseconds(300),
                             .patience = milliseconds(20),
                             .on_waiting = [&](const std::string& text) { vain.told.push_back(text); }};
  try {
    await_store(second_of_two(address, port), address, options);
  } catch (const Error& error) {
    vain.code = error.code();
    vain.error = error.what();
  }
  return vain;
}

std::string own_process() { return "process " + std::to_string(::getpid()) + ", "; }

TEST(AwaitStore, ReturnsOnceAStoreAnswers) {
  const int port = gputrain::testing::free_port();
  Rendezvous first = second_of_two("127.0.0.1", port);
  first.rank = 0;
  c10::intrusive_ptr<c10d::Store> store;
  std::string told;
  const auto serve = [&](const std::string& text) {
    told = text;
    store = open_store(first, "127.0.0.1", {});
  };
  await_store(second_of_two("127.0.0.1", port), "127.0.0.1", {.patience = milliseconds(1), .on_waiting = serve});
  EXPECT_EQ(told, "rank 1 waits for rank 0 at 127.0.0.1 port " + std::to_string(port) + ": Connection refused");
}

TEST(AwaitStore, EndsWhereNothingAnswers) {
  for (const char* address : {"127.0.0.1", "192.0.2.1"}) {
    const int port = gputrain::testing::free_port();
    const std::string place = "rank 0 at " + std::string(address) + " port " + std::to_string(port);
    const Vain vain = wait_in_vain(address, port);
    EXPECT_EQ(vain.code, ExitCode::restart);
    EXPECT_THAT(vain.error, HasSubstr("rank 1 cannot reach " + place + " within 1 s: "));
    EXPECT_THAT(vain.told, Contains(HasSubstr("rank 1 waits for " + place + ": ")));
  }
}

TEST(AwaitStore, EndsAtServiceThatSaysNothing) {
  const ListeningSocket silent("127.0.0.1", 0);  // the kernel accepts for it
  const Vain vain = wait_in_vain("127.0.0.1", silent.port());
  EXPECT_EQ(vain.code, ExitCode::restart);
  EXPECT_THAT(vain.error, AllOf(HasSubstr("it does not answer (" + own_process()), HasSubstr("MASTER_PORT")));
  EXPECT_THAT(vain.told, Contains(HasSubstr(": it does not answer (" + own_process())));
}

TEST(AwaitStore, RefusesAnotherServiceAtOnce) {
  ListeningSocket socket("127.0.0.1", 0);
  const int port = socket.port();
  const Descriptor listener(socket.release());
  std::thread service([&] {
    const Descriptor visitor(::accept(listener.get(), nullptr, nullptr));
    ::send(visitor.get(), "SSH-2.0-OpenSSH_9.2\r\n", 21, MSG_NOSIGNAL);
    char rest = 0;
    while (::recv(visitor.get(), &rest, 1, 0) > 0) {
    }
  });
  const Vain vain = wait_in_vain("127.0.0.1", port);
  service.join();
  EXPECT_EQ(vain.code, ExitCode::environment);
  EXPECT_THAT(vain.error,
              AllOf(HasSubstr("another service (" + own_process()), HasSubstr("there: SSH-2.0-OpenSSH_9.2\n")));
}

TEST(AwaitAddress, TellsThatNameServersAreSlow) {
  std::string told;
  const auto let_go = [&](const std::string& text) {
    told = text;
    name_servers_answer.set_value();
  };
  const GroupOptions options{.start_deadline = milliseconds(500), .patience = milliseconds(1), .on_waiting = let_go};
  EXPECT_THROW(await_address(second_of_two(kSlowName, 1), options), Error);
  EXPECT_THAT(told, HasSubstr("rank 1 waits for the address of MASTER_ADDR=slow.invalid"));
}

TEST(AwaitAddress, WaitsForANameThatIsNotKnownYet) {
  std::vector<std::string> told;
  const GroupOptions options{.patience = milliseconds(1),
                             .on_waiting = [&](const std::string& text) { told.push_back(text); }};
  EXPECT_NE(await_address(second_of_two(kLateName, 1), options), "");
  EXPECT_THAT(told, Contains(HasSubstr("waits for the address of MASTER_ADDR=late.invalid")));
}

TEST(RendezvousAddress, OfAnOwnNameIsTheSameHoweverManyRanksAreHere) {
  Rendezvous first = second_of_two(kOwnName, 1), second = first;
  first.rank = first.local_rank = 0;
  first.local_world_size = 1;  // all that it knows without LOCAL_WORLD_SIZE
  if (outward_address().empty()) GTEST_SKIP() << "this host has its loopback alone";
  EXPECT_EQ(rendezvous_address(first), rendezvous_address(second));
  EXPECT_FALSE(is_loopback(rendezvous_address(second)));
  EXPECT_EQ(rendezvous_address(second_of_two("127.0.1.1", 1)), "127.0.1.1") << "an address is meant as it is";
}

}  // namespace
}  // namespace gputrain::comm
