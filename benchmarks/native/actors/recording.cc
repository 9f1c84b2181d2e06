#include "recording.h"

#include <cstring>
#include <fstream>
#include <iterator>

namespace benchmarks {

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

bool Recording::Read(const char* path) {
  const std::string data = ReadFile(path);
  size_t position = 0;
  const auto number = [&](uint32_t* value) {
    if (data.size() - position < sizeof(*value)) return false;
    std::memcpy(value, data.data() + position, sizeof(*value));
    position += sizeof(*value);
    return true;
  };
  uint32_t count, size;
  if (!number(&envs) || !number(&env_ids) || !number(&run_ids) || !number(&count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!number(&size) || data.size() - position < size || size < own_bytes()) return false;
    calls.push_back(data.substr(position, size));
    position += size;
  }
  return calls.size() > 1 && position == data.size();
}

}  // namespace benchmarks
