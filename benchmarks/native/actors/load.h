// All actors of the process: executes commands and prints what came of them.

#ifndef BENCHMARKS_NATIVE_ACTORS_LOAD_H_
#define BENCHMARKS_NATIVE_ACTORS_LOAD_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "actor.h"
#include "clock.h"

namespace benchmarks {

class Load {
 public:
  Load(Shared* shared, int actors);

  // Executes one line of main.cc's commands, and prints a line of JSON.
  void Execute(const std::string& line);

  // Handles timers and one event, or waits for one until `end`.
  void Step(Clock::time_point end);

 private:
  using Entry = std::pair<Clock::time_point, Actor*>;
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.first > b.first; }
  };

  void Connect(Clock::time_point end);
  void Open(Clock::time_point end);
  void Play(Clock::time_point end, double spread_s);
  void Storm(Clock::time_point began, Clock::time_point end);
  void RunUntil(Clock::time_point end, const std::function<bool(const Actor&)>& done);
  void Reset();
  void Print(double seconds, double cpu_s);

  Shared* const shared_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::priority_queue<Entry, std::vector<Entry>, Later> timers_;
  size_t missing_ = 0;  // Actors that did not reach the command's goal in time.
};

}  // namespace benchmarks

#endif  // BENCHMARKS_NATIVE_ACTORS_LOAD_H_
