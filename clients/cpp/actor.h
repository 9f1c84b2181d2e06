// The actor: steps environments, requests actions from the learner (docs/wire_actor.md).

#ifndef SEED_RL_CLIENTS_CPP_ACTOR_H_
#define SEED_RL_CLIENTS_CPP_ACTOR_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>

#include "clients/cpp/batch.h"
#include "clients/cpp/environment.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl {

struct ActorConfig {
  std::string server_address = "localhost:8686";  // Or "unix:/path".
  // Number of this actor: its first environment is task * env_batch_size. -1: it asks the learner
  // for environments.
  int task = -1;
  int env_batch_size = 1;
  double connect_timeout_s = 600;
  double reconnect_timeout_s = 600;
  // Files, read for each connection. Without tls_ca, connections are not encrypted.
  std::string auth_token_file, tls_ca, tls_cert, tls_key;
};

// Reads the token in a file, "" without a path. Returns what is wrong with the file, or "".
std::string ReadToken(const std::string& path, std::string* token);

enum class ExitCode : int {
  kDone = 0,
  kEnvironmentFailed = 1,
  kUserError = 2,
  kSuperseded = 3,
  kNoLearner = 4,
};

// What ends an actor before training is done.
struct ActorEnded : std::runtime_error {
  ActorEnded(ExitCode code, const std::string& message) : std::runtime_error(message), code(code) {}
  ExitCode code;
};

class Actor {
 public:
  // Creates the environments. Throws EnvironmentFailure.
  Actor(const Spaces& spaces, const CreateEnvironment& create, const ActorConfig& config);

  // Runs lives until training is done or Stop. Throws ActorEnded, EnvironmentFailure.
  void Run();
  // Makes Run return soon; thread-safe.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;

  bool stopped();
  // From connecting to the first error, which it returns.
  transport::Status Life();
  transport::Status Connect();
  void CheckLearner(const std::string& description);
  // Asks for environments, if there is no task.
  transport::Status Claim();
  // Calls a function and waits for the results, of which `take` returns whether they fit.
  transport::Status Call(uint32_t function, const std::vector<transport::Tensor>& arguments,
                         const std::function<bool(const std::vector<transport::Tensor>&)>& take);
  // Requests actions for the batch.
  transport::Status Infer(int64_t run_id);
  // Throws ActorEnded if another attempt cannot help, or the time is up; else waits.
  void BeforeNextAttempt(const transport::Status& status);
  // The first; also forgets ids that the learner has taken back.
  void ThrowIfFatal(const transport::Status& status, double pause_s);
  double RemainingSeconds() const;

  const ActorConfig config_;
  const Spaces spaces_;
  Batch batch_;
  uint32_t inference_ = 0;    // Its index.
  size_t num_arguments_ = 0;  // Tensors that it takes.
  int claim_ = -1;            // Index of `claim`; -1: the learner has no such function.
  bool has_ids_;              // Whether environments have been claimed, or need not be.
  Clock::time_point last_answer_ = Clock::now();
  double timeout_s_;
  int failures_ = 0;  // Since the last answer.
  std::random_device random_;

  std::mutex mu_;
  std::condition_variable stopping_;
  bool stopped_ = false;                       // Guarded by mu_.
  std::shared_ptr<transport::Client> client_;  // Changed by Run alone. Guarded by mu_.
};

// The program of an actor: reads its flags, runs it, and returns the exit code. SIGTERM and SIGINT
// stop it within 5 s; call it before other threads start.
int ActorMain(int argc, char** argv, const Spaces& spaces, const CreateEnvironment& create);

}  // namespace seed_rl

#endif  // SEED_RL_CLIENTS_CPP_ACTOR_H_
