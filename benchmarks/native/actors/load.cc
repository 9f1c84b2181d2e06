#include "load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>

namespace benchmarks {
namespace {

constexpr double kConnectS = 300;  // Longest wait for all actors to connect.

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Median, 99th percentile and maximum in ms; null without values.
std::string Percentiles(std::vector<float>* seconds) {
  if (seconds->empty()) return "null";
  std::sort(seconds->begin(), seconds->end());
  const size_t last = seconds->size() - 1;
  char text[100];
  std::snprintf(text, sizeof(text), "[%.3f, %.3f, %.3f]", 1e3 * (*seconds)[last / 2],
                1e3 * (*seconds)[static_cast<size_t>(0.99 * last)], 1e3 * (*seconds)[last]);
  return text;
}

}  // namespace

Load::Load(Shared* shared, int actors) : shared_(shared) {
  const auto timer = [this](Actor* actor, double seconds) {
    timers_.push({Clock::now() + Duration(seconds), actor});
  };
  for (int i = 0; i < actors; ++i) {
    actors_.push_back(std::make_unique<Actor>(shared, timer, i));
  }
}

void Load::Execute(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  double seconds = 0, spread_s = 0;
  words >> command >> seconds >> spread_s;
  Reset();
  const auto began = Clock::now();
  const double cpu_s = CpuSeconds();
  if (command == "connect") {
    Connect(began + Duration(kConnectS));
  } else if (command == "open") {
    Open(began + Duration(kConnectS));
  } else if (command == "play") {
    Play(began + Duration(seconds), spread_s);
  } else if (command == "storm") {
    Storm(began, began + Duration(seconds));
  }
  shared_->playing = false;
  Print(Seconds(Clock::now() - began), CpuSeconds() - cpu_s);
}

void Load::Connect(Clock::time_point end) {
  for (auto& actor : actors_) actor->Connect();
  RunUntil(end, [](const Actor& actor) { return actor.connected(); });
}

void Load::Open(Clock::time_point end) {
  for (auto& actor : actors_) actor->Open();
  RunUntil(end, [](const Actor& actor) { return actor.ready(); });
}

void Load::Play(Clock::time_point end, double spread_s) {
  shared_->playing = true;
  for (auto& actor : actors_) {
    if (actor->ready()) actor->Play(spread_s);
  }
  RunUntil(end, [](const Actor&) { return false; });
  missing_ = 0;
}

void Load::Storm(Clock::time_point began, Clock::time_point end) {
  shared_->playing = true;
  for (auto& actor : actors_) actor->Leave();
  RunUntil(end, [](const Actor& actor) { return actor.absent(); });
  Reset();
  for (auto& actor : actors_) {
    if (actor->absent()) actor->Return(began);
  }
  RunUntil(end, [](const Actor& actor) { return actor.answered(); });
}

// Handles events until `end`, or until `done` holds for all actors.
void Load::RunUntil(Clock::time_point end, const std::function<bool(const Actor&)>& done) {
  size_t finished = 0;  // All actors before this one were done when last seen.
  while (Clock::now() < end) {
    while (finished < actors_.size() && done(*actors_[finished])) ++finished;
    if (finished == actors_.size()) {
      // Until all are done at the same time: one may have lost its connection meanwhile.
      finished = 0;
      while (finished < actors_.size() && done(*actors_[finished])) ++finished;
      if (finished == actors_.size()) break;
    }
    Step(end);
  }
  missing_ = 0;
  for (auto& actor : actors_) missing_ += !done(*actor);
}

void Load::Step(Clock::time_point end) {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.top().first <= now) {
    Actor* const actor = timers_.top().second;
    timers_.pop();
    actor->Wake();
  }
  if (!timers_.empty()) end = std::min(end, timers_.top().first);
  const auto wait = std::max(Clock::duration::zero(), end - now);
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
  void* tag;
  bool ok;
  if (shared_->queue.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
    static_cast<Actor*>(tag)->Proceed(ok);
  }
}

void Load::Reset() {
  shared_->measured_since = Clock::now();
  shared_->waits_s.clear();
  shared_->first_waits_s.clear();
  shared_->calls = shared_->errors = shared_->lost = 0;
  shared_->problem.clear();
}

void Load::Print(double seconds, double cpu_s) {
  std::string problem;
  for (char c : shared_->problem.substr(0, 300)) {
    problem += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  std::printf(
      "{\"seconds\": %.3f, \"cpu_s\": %.3f, \"calls\": %lld, \"errors\": %lld, \"lost\": %lld, "
      "\"missing\": %zu, \"problem\": \"%s\", \"waits_ms\": %s, \"first_waits_ms\": %s}\n",
      seconds, cpu_s, static_cast<long long>(shared_->calls),
      static_cast<long long>(shared_->errors), static_cast<long long>(shared_->lost), missing_,
      problem.c_str(), Percentiles(&shared_->waits_s).c_str(),
      Percentiles(&shared_->first_waits_s).c_str());
  std::fflush(stdout);
}

}  // namespace benchmarks
