// Minimal JSON output.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_JSON_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_JSON_H_

#include <cstdio>
#include <string>

namespace seed_rl::transport {

inline std::string JsonString(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

inline std::string JsonNumber(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", number);
  return text;
}

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_JSON_H_
