// The clock of all measurements, and seconds as numbers.

#ifndef BENCHMARKS_NATIVE_ACTORS_CLOCK_H_
#define BENCHMARKS_NATIVE_ACTORS_CLOCK_H_

#include <chrono>

namespace benchmarks {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace benchmarks

#endif  // BENCHMARKS_NATIVE_ACTORS_CLOCK_H_
