// Plays many actors against a learner from one thread: recorded calls instead of environments.
//
// Usage: actors ADDRESS RECORDING ACTORS [CERTIFICATE_AUTHORITY]
//
// Each actor has its own connection and its own environments, sends one call at a time, and waits
// for its reply, as real actors do. benchmarks/load_actors.py writes RECORDING and describes it.
// Commands are lines on stdin; each is answered with one JSON object on stdout:
//
//   connect                 every actor connects, and stays silent
//   open                    every actor opens its stream of calls
//   play SECONDS SPREAD_S   the actors play; each makes its first call within SPREAD_S
//   storm SECONDS           all actors disconnect, start new lives and keep playing, until each
//                           had a reply or SECONDS have passed
//
// Like real actors, the process uses SCHED_BATCH, so that waking up preempts no other process.

#include <grpcpp/grpcpp.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <queue>
#include <string>
#include <thread>

#include "actor.h"
#include "load.h"
#include "recording.h"

namespace benchmarks {
namespace {

// Lines of stdin, read by a thread, so that the actors answer pings while there is no command.
class Commands {
 public:
  Commands() {
    std::thread([this] {
      std::string line;
      while (std::getline(std::cin, line)) {
        std::lock_guard<std::mutex> lock(mu_);
        lines_.push(line);
      }
      std::_Exit(0);
    }).detach();
  }

  bool Next(std::string* line) {
    std::lock_guard<std::mutex> lock(mu_);
    if (lines_.empty()) return false;
    *line = lines_.front();
    lines_.pop();
    return true;
  }

 private:
  std::mutex mu_;
  std::queue<std::string> lines_;
};

int Main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: actors ADDRESS RECORDING ACTORS [CERTIFICATE_AUTHORITY]\n");
    return 2;
  }
  Shared shared;
  shared.address = argv[1];
  if (!shared.recording.Read(argv[2])) {
    std::fprintf(stderr, "%s is not a recording\n", argv[2]);
    return 2;
  }
  shared.credentials = grpc::InsecureChannelCredentials();
  if (argc > 4) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ReadFile(argv[4]);
    shared.credentials = grpc::SslCredentials(options);
  }
  const sched_param no_priority = {};
  if (sched_setscheduler(0, SCHED_BATCH, &no_priority) != 0) {
    std::perror("sched_setscheduler");
    return 1;
  }
  Load load(&shared, std::atoi(argv[3]));
  Commands commands;
  std::printf("{}\n");  // Ready.
  std::fflush(stdout);
  std::string line;
  for (;;) {
    if (commands.Next(&line)) {
      load.Execute(line);
    } else {
      load.Step(Clock::now() + std::chrono::milliseconds(5));
    }
  }
}

}  // namespace
}  // namespace benchmarks

int main(int argc, char** argv) { return benchmarks::Main(argc, argv); }
