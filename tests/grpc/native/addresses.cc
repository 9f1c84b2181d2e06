// All addresses of a name or none: BindAll with names whose addresses the test chooses, since
// what "localhost" is depends on the machine. And the files of Unix sockets.

#include "seed_rl/grpc/native/transport/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "seed_rl/grpc/native/transport/listening_sockets.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {
namespace {

// A name that has these addresses, in this order.
Resolve NameOf(std::vector<std::string> hosts) {
  return [hosts](const std::string&, const std::string& port,
                 std::vector<SocketAddress>* addresses) -> Status {
    for (const std::string& host : hosts) {
      const Status status = ResolveWithSystem(host, port, addresses);
      if (!status.ok()) return status;
    }
    return {};
  };
}

// Somebody else who listens on a port of one address.
class Stranger {
 public:
  explicit Stranger(const char* host, int port = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host, &address.sin_addr);
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    socklen_t size = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    listens_ = bind(fd_, raw, size) == 0 && listen(fd_, 1) == 0;
    getsockname(fd_, raw, &size);
    port_ = ntohs(address.sin_port);
  }
  ~Stranger() { close(fd_); }
  bool listens() const { return listens_; }
  std::string port() const { return std::to_string(port_); }

 private:
  int fd_;
  bool listens_;
  int port_;
};

void TestAPortInUseAtAnyAddress() {
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    Stranger stranger(host);
    CHECK(stranger.listens());
    std::vector<BoundSocket> sockets;
    const Status status =
        BindAll("name:" + stranger.port(), &sockets, NameOf({"127.0.0.1", "127.0.0.2"}));
    CHECK(status.code == Code::kUnavailable);
    CHECK(status.message ==
          "Cannot listen on name:" + stranger.port() + ": the port is in use at " + host);
    CHECK(sockets.empty());
  }
}

void TestAFreePortIsOneForAllAddresses() {
  std::vector<BoundSocket> sockets;
  CHECK(BindAll("name:0", &sockets, NameOf({"127.0.0.1", "127.0.0.2"})).ok());
  CHECK(sockets.size() == 2);
  CHECK(sockets[0].host == "127.0.0.1" && sockets[1].host == "127.0.0.2");
  CHECK(sockets[0].port > 0 && sockets[0].port == sockets[1].port);
  // They do not listen.
  CHECK(Stranger("127.0.0.1", sockets[0].port).listens());
}

void TestAddressesOfOtherMachinesAreLeftOut() {
  // 192.0.2.1 and 2001:db8::1 are for documentation and nobody's: as ::1 is without IPv6.
  std::vector<BoundSocket> sockets;
  CHECK(BindAll("name:0", &sockets, NameOf({"2001:db8::1", "192.0.2.1", "127.0.0.1"})).ok());
  CHECK(sockets.size() == 1);
  CHECK(sockets[0].host == "127.0.0.1" && sockets[0].port > 0);

  std::vector<BoundSocket> none;
  const Status status = BindAll("name:0", &none, NameOf({"2001:db8::1", "192.0.2.1"}));
  CHECK(status.code == Code::kUnavailable);
  CHECK(status.message == "Cannot listen on name:0: not an address of this machine");
}

void TestAddressesWithoutSupportOfTheSystemAreLeftOut() {
  // No system has this family: as IPv6 on one that was started with ipv6.disable=1.
  SocketAddress unsupported;
  unsupported.storage.ss_family = 0xFFFF;
  unsupported.size = sizeof(sockaddr_in);
  const Resolve resolve = [&](const std::string&, const std::string& port,
                              std::vector<SocketAddress>* addresses) {
    addresses->push_back(unsupported);
    return ResolveWithSystem("127.0.0.1", port, addresses);
  };
  std::vector<BoundSocket> sockets;
  CHECK(BindAll("name:0", &sockets, resolve).ok());
  CHECK(sockets.size() == 1);
  CHECK(sockets[0].host == "127.0.0.1");
}

void TestOtherAddresses() {
  for (const char* address : {"unix:/tmp/x", "unix-abstract:x", "localhost", "vsock:1:2", ""}) {
    std::vector<BoundSocket> sockets;
    CHECK(BindAll(address, &sockets, NameOf({"127.0.0.1"})).code == Code::kInvalidArgument);
    CHECK(sockets.empty());
  }
  // Clients may use gRPC's way to write them.
  for (const char* address : {"dns:///name:0", "ipv4:127.0.0.1:0", "ipv6:[::1]:0"}) {
    std::vector<BoundSocket> sockets;
    CHECK(BindAll(address, &sockets, NameOf({"127.0.0.1"})).ok());
    CHECK(sockets.size() == 1);
  }
}

// Unix sockets are never encrypted: a host must not be taken for one.
void TestUnixAddressesAreToldByTheirScheme() {
  CHECK(IsUnix("unix:/tmp/x"));
  CHECK(IsUnix("unix:x"));
  CHECK(IsUnix("unix-abstract:x"));
  CHECK(!IsUnix("unixbox:8686"));
  CHECK(!IsUnix("unix-box.lan:8686"));
}

void TestWhatIsNoPortOrNoName() {
  std::vector<BoundSocket> sockets;
  for (const char* address : {"127.0.0.1:65536", "127.0.0.1:99999999999999999999"}) {
    CHECK(BindAll(address, &sockets).code == Code::kInvalidArgument);
  }
  CHECK(BindAll("no.such.name.invalid:80", &sockets).code == Code::kUnavailable);
  CHECK(BindAll("name:80", &sockets, NameOf({})).code == Code::kUnavailable);
}

// A server that cannot look who is there does not delete the file of one that lives.
void TestWithoutDescriptorsNothingIsDeleted(const std::string& address) {
  int port;
  ListeningSockets living, other;
  CHECK(living.Add(address, &port).ok());
  rlimit limits;
  CHECK(getrlimit(RLIMIT_NOFILE, &limits) == 0);
  const rlimit none = {0, limits.rlim_max};
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Status status = other.Add(address, &port);
  CHECK(setrlimit(RLIMIT_NOFILE, &limits) == 0);
  CHECK(status.code == Code::kUnavailable);
  CHECK(status.message == "Cannot listen on " + address + ": Too many open files");
  CHECK(access(SocketPath(address).c_str(), F_OK) == 0);
  CHECK(other.Add(address, &port).message ==
        "Another server is listening on " + address + "; stop it or choose another address");
}

// Of servers that start at the same moment, one gets the path; a dead server's file changes
// nothing.
void TestServersThatStartTogether(const std::string& address) {
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    ListeningSockets servers[2];
    if (round % 2 != 0) {
      const Fd dead(socket(AF_UNIX, SOCK_STREAM, 0));
      sockaddr_un place = {};
      place.sun_family = AF_UNIX;
      SocketPath(address).copy(place.sun_path, sizeof(place.sun_path) - 1);
      CHECK(bind(dead.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0);
    }
    std::atomic<int> ready{0}, listening{0};
    const auto start = [&](ListeningSockets* server) {
      ++ready;
      while (ready < 2) {
      }
      int port;
      const Status status = server->Add(address, &port);
      if (status.ok()) {
        ++listening;
      } else {
        CHECK(status.message ==
              "Another server is listening on " + address + "; stop it or choose another address");
      }
    };
    std::thread other(start, &servers[1]);
    start(&servers[0]);
    other.join();
    CHECK(listening == 1);
  }
}

}  // namespace
}  // namespace seed_rl::transport

int main(int argc, char** argv) {
  CHECK(argc == 2);
  seed_rl::transport::TestAPortInUseAtAnyAddress();
  seed_rl::transport::TestAFreePortIsOneForAllAddresses();
  seed_rl::transport::TestAddressesOfOtherMachinesAreLeftOut();
  seed_rl::transport::TestAddressesWithoutSupportOfTheSystemAreLeftOut();
  seed_rl::transport::TestOtherAddresses();
  seed_rl::transport::TestUnixAddressesAreToldByTheirScheme();
  seed_rl::transport::TestWhatIsNoPortOrNoName();
  seed_rl::transport::TestWithoutDescriptorsNothingIsDeleted(argv[1]);
  seed_rl::transport::TestServersThatStartTogether(argv[1]);
}
