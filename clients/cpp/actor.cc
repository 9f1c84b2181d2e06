#include "clients/cpp/actor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

namespace seed_rl::transport {
extern "C" Client* seed_transport_connect(const ClientConfig& config, Status* status);
}  // namespace seed_rl::transport

namespace seed_rl {
namespace {

using Json = nlohmann::json;
using transport::Code;
using transport::Status;

constexpr double kAttemptSeconds = 3, kShortestAttemptSeconds = 0.1;
constexpr double kFirstPauseSeconds = 0.1, kLongestPauseSeconds = 5;
constexpr int kProtocol = 1;
// "" stands for the fields of the environments' output.
const std::vector<std::string> kArguments{"env_ids", "run_ids", "", "raw_rewards", "successes"};

constexpr size_t kLongestToken = 4096;

std::chrono::duration<double> Seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

[[noreturn]] void Refuse(const std::string& message) {
  throw ActorEnded(ExitCode::kUserError, message);
}

// Reads a file; false if that is impossible for now.
bool Read(const std::string& path, std::string* text) {
  if (path.empty()) return true;
  std::ifstream file(path);
  try {
    text->assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // A directory, say.
    return false;
  }
  return file.good() || file.eof();
}

std::string Trimmed(const std::string& text) {
  const char* const kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Appends the tensors of a structure of Describe (docs/wire_format.md), without their first
// dimension.
void AppendLeaves(const Json& structure, std::vector<Spec>* leaves) {
  if (structure.empty()) Refuse("The server is not a learner: it describes an empty structure.");
  const std::string kind = structure.begin().key();
  const Json& content = structure.begin().value();
  if (kind == "tensor") {
    Spec spec{content.at("dtype"), {}};
    const Json& shape = content.at("shape");
    for (size_t i = 1; i < shape.size(); ++i) {
      spec.shape.push_back(shape[i].is_null() ? -1 : shape[i].get<int64_t>());
    }
    leaves->push_back(std::move(spec));
  } else if (kind != "none") {
    const bool named = kind == "namedtuple" || kind == "dict";
    for (const Json& value : named ? content.at("values") : content) AppendLeaves(value, leaves);
  }
}

std::vector<Spec> Leaves(const Json& structure) {
  std::vector<Spec> leaves;
  AppendLeaves(structure, &leaves);
  return leaves;
}

std::string Text(const std::vector<Spec>& parts) {
  std::string text;
  for (const Spec& part : parts) text += (text.empty() ? "" : ", ") + part.Text();
  return text;
}

// The numbers of an actor's environments; without a task, those of their rows for now.
std::vector<int> IdsOf(const ActorConfig& config) {
  std::vector<int> ids(config.env_batch_size);
  std::iota(ids.begin(), ids.end(), std::max(config.task, 0) * config.env_batch_size);
  return ids;
}

// Such as "0, 1, 2".
std::string Names(const std::vector<int>& ids) {
  std::string names;
  for (const int id : ids) names += (names.empty() ? "" : ", ") + std::to_string(id);
  return names;
}

}  // namespace

std::string ReadToken(const std::string& path, std::string* token) {
  if (path.empty()) return "";
  if (!Read(path, token)) return path + " cannot be read";
  *token = Trimmed(*token);
  const auto is_printable = [](char c) { return ' ' <= c && c <= '~'; };
  // With other characters, gRPC would end the process.
  if (!token->empty() && token->size() <= kLongestToken &&
      std::all_of(token->begin(), token->end(), is_printable)) {
    return "";
  }
  return path + " is not a token: that has 1 to 4096 characters of visible ASCII and spaces";
}

Actor::Actor(const Spaces& spaces, const CreateEnvironment& create, const ActorConfig& config)
    : config_(config),
      spaces_(spaces),
      batch_(spaces, create, IdsOf(config)),
      has_ids_(config.task >= 0),
      timeout_s_(config.connect_timeout_s) {}

void Actor::Stop() {
  std::shared_ptr<transport::Client> client;
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    client = client_;
  }
  stopping_.notify_all();
  if (client) client->Close();
}

bool Actor::stopped() {
  std::lock_guard<std::mutex> lock(mu_);
  return stopped_;
}

void Actor::Run() {
  while (!stopped()) {
    const auto began = Clock::now();
    batch_.Reset();
    last_answer_ += Clock::now() - began;
    const Status status = Life();
    {
      std::lock_guard<std::mutex> lock(mu_);
      client_ = nullptr;
    }
    if (status.code == Code::kOutOfRange || stopped()) return;
    BeforeNextAttempt(status);
  }
}

Status Actor::Life() {
  Status status = Connect();
  if (status.ok() && !has_ids_) status = Claim();
  std::uniform_int_distribution<int64_t> run_ids(1, std::numeric_limits<int64_t>::max());
  const int64_t run_id = run_ids(random_);
  for (bool first = true; status.ok() && !stopped(); first = false) {
    status = Infer(run_id);
    if (status.ok() || !first) last_answer_ = Clock::now();  // However long the call has taken.
    if (!status.ok()) break;
    if (first) {
      std::fprintf(stderr, "Environments %s: learner at %s.\n", Names(batch_.ids()).c_str(),
                   config_.server_address.c_str());
      timeout_s_ = config_.reconnect_timeout_s;
      failures_ = 0;
    }
    batch_.Apply();
  }
  return status;
}

Status Actor::Connect() {
  transport::ClientConfig config;
  config.address = config_.server_address;
  config.tls = !config_.tls_ca.empty();
  // Secrets may change while the learner is away.
  const std::string problem = ReadToken(config_.auth_token_file, &config.token);
  if (!problem.empty()) return {Code::kUnavailable, problem};
  for (const auto& [path, text] : {std::pair{&config_.tls_ca, &config.tls_ca},
                                   {&config_.tls_cert, &config.tls_cert},
                                   {&config_.tls_key, &config.tls_key}}) {
    if (!Read(*path, text)) return {Code::kUnavailable, *path + " cannot be read"};
  }
  config.connect_timeout_s =
      std::min(kAttemptSeconds, std::max(RemainingSeconds(), kShortestAttemptSeconds));
  Status status;
  std::shared_ptr<transport::Client> client(transport::seed_transport_connect(config, &status));
  if (!status.ok()) return status;
  CheckLearner(client->description());
  std::lock_guard<std::mutex> lock(mu_);
  client_ = std::move(client);
  return {};
}

void Actor::CheckLearner(const std::string& description) try {
  const Json learner = Json::parse(description);
  if (learner.at("protocol") != kProtocol) {
    Refuse("The learner speaks protocol " + learner.at("protocol").dump() + ", this actor " +
           std::to_string(kProtocol) + ": install the same version on both sides.");
  }
  const Json& functions = learner.at("functions");
  const auto index_of = [&functions](const std::string& name) {
    for (size_t i = 0; i < functions.size(); ++i) {
      if (functions[i].at("name") == name) return static_cast<int>(i);
    }
    return -1;
  };
  const int index = index_of("inference");
  if (index < 0) Refuse("The server is not a learner: it has no `inference`.");
  inference_ = index;
  claim_ = index_of("claim");
  const Json& inference = functions[index];
  const Json& arguments = inference.at("arguments");
  const Json& output = arguments.at("tuple").at(2).at("namedtuple");
  const Json fields{"reward", "done", "observation", "abandoned", "episode_step"};
  if (output.at("fields") != fields) Refuse("The learner is of another version: other arguments.");
  const Json& asked = arguments.at("tuple");
  for (size_t i = 0; i < asked.size(); ++i) {
    if (i == 2) continue;  // The fields above.
    const std::string name = asked[i].value("tensor", Json::object()).value("name", "a structure");
    if (i >= kArguments.size() || name != kArguments[i]) {
      Refuse("The learner asks for `" + name + "`, which this actor does not know there.");
    }
  }
  num_arguments_ = Leaves(arguments).size();
  const std::vector<Spec> observation = Leaves(output.at("values").at(2));
  if (observation != spaces_.observation) {
    Refuse("The learner expects observations " + Text(observation) + ", this environment has " +
           Text(spaces_.observation) + ". Start both for the same environment.");
  }
  const std::string actions =
      learner.value("status", Json::object()).value("action_space", spaces_.actions);
  if (actions != spaces_.actions) {
    Refuse("The learner's actions are " + actions + ", this environment takes " + spaces_.actions +
           ".");
  }
  batch_.ExpectActions(Leaves(inference.at("outputs")));
} catch (const Json::exception& error) {
  Refuse("The server is not a learner: " + std::string(error.what()));
}

Status Actor::Claim() {
  if (claim_ < 0) Refuse("This learner does not hand out environments: give --task=N.");
  Column count({"int32", {}}, 1), claimed({"int32", {}}, batch_.ids().size());
  count.Set<int32_t>(0, config_.env_batch_size);
  transport::Tensor argument = count.AsTensor();
  argument.dims.clear();
  bool free = false;
  const Status status =
      Call(claim_, {argument}, [&](const std::vector<transport::Tensor>& results) {
        free = results.size() == 1 && claimed.CopyFrom(results[0]);
        return true;
      });
  if (!status.ok()) return status;
  if (!free) {
    return {Code::kUnavailable,
            "fewer than " + std::to_string(config_.env_batch_size) +
                " of the learner's environments (--num_envs) are free; those of a dead "
                "actor become free after a minute"};
  }
  const auto* ids = reinterpret_cast<const int32_t*>(claimed.AsTensor().data);
  batch_.SetIds({ids, ids + batch_.ids().size()});
  has_ids_ = true;
  return {};
}

Status Actor::Infer(int64_t run_id) {
  std::vector<transport::Tensor> arguments = batch_.Arguments(run_id);
  arguments.resize(std::min(num_arguments_, arguments.size()));
  return Call(inference_, arguments, [this](const std::vector<transport::Tensor>& results) {
    return batch_.TakeActions(results);
  });
}

Status Actor::Call(uint32_t function, const std::vector<transport::Tensor>& arguments,
                   const std::function<bool(const std::vector<transport::Tensor>&)>& take) {
  const auto answered = std::make_shared<std::promise<Status>>();
  std::future<Status> status = answered->get_future();
  // Without a deadline: gRPC's keep-alive notices a dead learner.
  client_->Call(
      function, arguments,
      [&take, answered](const Status& status, const std::vector<transport::Tensor>& results) {
        const bool fits = !status.ok() || take(results);
        answered->set_value(fits ? status : Status{Code::kInternal, "the reply does not fit"});
      });
  return status.get();
}

double Actor::RemainingSeconds() const {
  return timeout_s_ - std::chrono::duration<double>(Clock::now() - last_answer_).count();
}

void Actor::BeforeNextAttempt(const Status& status) {
  const double pause_s =
      std::min(std::ldexp(kFirstPauseSeconds, std::min(failures_, 10)), kLongestPauseSeconds);
  ThrowIfFatal(status, pause_s);
  const double remaining_s = RemainingSeconds();
  if (remaining_s <= 0) {
    throw ActorEnded(ExitCode::kNoLearner,
                     "No learner at " + config_.server_address + " for " +
                         std::to_string(std::lround(timeout_s_)) + " s (" + status.message +
                         "). Check that it is running and that --server_address is right.");
  }
  if (failures_++ == 0) {
    std::fprintf(stderr, "The learner at %s: %s; trying again\n", config_.server_address.c_str(),
                 status.message.c_str());
  }
  // Many actors lose the same learner at once and must not all return at once.
  const double part = std::uniform_real_distribution<>(0.5, 1)(random_);
  std::unique_lock<std::mutex> lock(mu_);
  stopping_.wait_for(lock, Seconds(std::min(pause_s * part, remaining_s)),
                     [this] { return stopped_; });
}

void Actor::ThrowIfFatal(const Status& status, double pause_s) {
  switch (status.code) {
    case Code::kFailedPrecondition:
      if (config_.task < 0) {
        has_ids_ = false;  // They were silent for too long.
        return;
      }
      throw ActorEnded(ExitCode::kSuperseded, status.message + " Give every actor its own --task.");
    case Code::kUnauthenticated:
      // A new token may not have been copied yet.
      if (!config_.auth_token_file.empty() && RemainingSeconds() > pause_s) return;
      [[fallthrough]];
    case Code::kPermissionDenied:
      Refuse("The learner refuses this actor: " + status.message +
             ". Start both with the same --auth_token_file.");
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
      Refuse("The learner rejects the steps of environments " + Names(batch_.ids()) + ": " +
             status.message + ".");
    default:
      return;
  }
}

}  // namespace seed_rl
