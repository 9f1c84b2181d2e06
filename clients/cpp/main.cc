// Flags, signals and exit codes of an actor.

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "clients/cpp/actor.h"

namespace seed_rl {
namespace {

constexpr std::chrono::milliseconds kStopGrace{4500};

[[noreturn]] void BadFlag(const std::string& message) {
  throw ActorEnded(ExitCode::kUserError, message);
}

double Number(const std::string& name, const std::string& text, double least) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(number >= least)) {
    BadFlag("--" + name + "=" + text + " must be a number, at least " +
            std::to_string(static_cast<int>(least)) + ".");
  }
  return number;
}

int Integer(const std::string& name, const std::string& text, int least) {
  const double number = Number(name, text, least);
  const int integer = static_cast<int>(std::min<double>(number, std::numeric_limits<int>::max()));
  if (integer != number) BadFlag("--" + name + "=" + text + " must be an integer.");
  return integer;
}

ActorConfig ConfigFromFlags(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"server_address", "localhost:8686"},
                                              {"task", "-1"},
                                              {"env_batch_size", "1"},
                                              {"connect_timeout_s", "600"},
                                              {"reconnect_timeout_s", "600"},
                                              {"auth_token_file", ""},
                                              {"tls_ca", ""},
                                              {"tls_cert", ""},
                                              {"tls_key", ""}};
  std::vector<option> options;
  for (const auto& [name, value] : given) {
    options.push_back({name.c_str(), required_argument, nullptr, 1});
  }
  options.push_back({});
  int index = 0;
  for (int found; (found = getopt_long(argc, argv, "", options.data(), &index)) != -1;) {
    if (found != 1) {  // getopt has said what is wrong.
      std::string names;
      for (const auto& [name, value] : given) names += " --" + name;
      BadFlag("The flags are" + names + ".");
    }
    given[options[index].name] = optarg;
  }
  if (optind < argc) BadFlag(std::string("What is ") + argv[optind] + "? Flags begin with --.");
  std::string token;
  const std::string problem = ReadToken(given["auth_token_file"], &token);
  if (!problem.empty()) BadFlag("--auth_token_file=" + problem + ".");
  for (const char* name : {"tls_ca", "tls_cert", "tls_key"}) {
    if (!given[name].empty() && access(given[name].c_str(), R_OK) != 0) {
      BadFlag("--" + std::string(name) + "=" + given[name] + " cannot be read.");
    }
  }
  if (given["tls_cert"].empty() != given["tls_key"].empty() ||
      (!given["tls_cert"].empty() && given["tls_ca"].empty())) {
    BadFlag("--tls_cert and --tls_key go together, and with --tls_ca.");
  }
  ActorConfig config;
  config.server_address = given["server_address"];
  config.task = Integer("task", given["task"], -1);
  config.env_batch_size = Integer("env_batch_size", given["env_batch_size"], 1);
  config.connect_timeout_s = Number("connect_timeout_s", given["connect_timeout_s"], 0);
  config.reconnect_timeout_s = Number("reconnect_timeout_s", given["reconnect_timeout_s"], 0);
  config.auth_token_file = given["auth_token_file"];
  config.tls_ca = given["tls_ca"];
  config.tls_cert = given["tls_cert"];
  config.tls_key = given["tls_key"];
  return config;
}

// Stops an actor at SIGTERM and SIGINT, and the process if an environment does not return.
class StopSignals {
 public:
  // Blocks the signals in this thread and those it starts from now on.
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Wait(); });
  }
  ~StopSignals() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ended_ = true;
    }
    changed_.notify_all();
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }
  // What to stop; it must outlive this object.
  void Stop(Actor* actor) {
    std::lock_guard<std::mutex> lock(mu_);
    actor_ = actor;
    if (signalled_) actor->Stop();
  }

 private:
  void Wait() {
    int signal = 0;
    sigwait(&signals_, &signal);
    std::unique_lock<std::mutex> lock(mu_);
    if (ended_) return;
    signalled_ = true;
    if (actor_ != nullptr) actor_->Stop();
    if (changed_.wait_for(lock, kStopGrace, [this] { return ended_; })) return;
    std::fprintf(stderr, "An environment does not return; exiting anyway.\n");
    _exit(static_cast<int>(ExitCode::kDone));
  }

  sigset_t signals_;
  std::thread thread_;
  std::mutex mu_;
  std::condition_variable changed_;
  Actor* actor_ = nullptr;  // Null while environments are created. Guarded by mu_.
  bool signalled_ = false;  // Guarded by mu_.
  bool ended_ = false;      // The actor. Guarded by mu_.
};

}  // namespace

int ActorMain(int argc, char** argv, const Spaces& spaces, const CreateEnvironment& create) {
  ExitCode code = ExitCode::kDone;
  std::string message;
  try {
    const ActorConfig config = ConfigFromFlags(argc, argv);
    // Before the environments, whose threads must inherit what it blocks. It must end before the
    // actor does.
    auto signals = std::make_unique<StopSignals>();
    Actor actor(spaces, create, config);
    signals->Stop(&actor);
    const auto end = [&signals](Actor*) { signals = nullptr; };
    const std::unique_ptr<Actor, decltype(end)> ended(&actor, end);
    actor.Run();
  } catch (const ActorEnded& error) {
    code = error.code;
    message = error.what();
  } catch (const EnvironmentFailure& error) {
    code = ExitCode::kEnvironmentFailed;
    message = error.what();
  } catch (const std::exception& error) {
    code = ExitCode::kUserError;
    message = error.what();
  }
  if (!message.empty()) std::fprintf(stderr, "error: %s\n", message.c_str());
  return static_cast<int>(code);
}

}  // namespace seed_rl
