// Recorded calls, as benchmarks/load_actors.py writes them.

#ifndef BENCHMARKS_NATIVE_ACTORS_RECORDING_H_
#define BENCHMARKS_NATIVE_ACTORS_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace benchmarks {

// The contents of a file; empty if it cannot be read.
std::string ReadFile(const char* path);

// The calls of an actor: the first of a life, then the others in a circle.
struct Recording {
  uint32_t envs;     // Environments per actor.
  uint32_t env_ids;  // Where a call has its environment ids, ...
  uint32_t run_ids;  // ... and its run ids: the last bytes that differ between actors.
  std::vector<std::string> calls;

  // Bytes at the start of a call, up to the last that differ between actors.
  size_t own_bytes() const { return run_ids + envs * sizeof(int64_t); }

  // Reads a recording; false if the file is none.
  bool Read(const char* path);
};

}  // namespace benchmarks

#endif  // BENCHMARKS_NATIVE_ACTORS_RECORDING_H_
