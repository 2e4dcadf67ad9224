#include "base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

namespace gpulayer {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Length of the valid UTF-8 sequence at the start of `s`, 0 if there is none (RFC 3629: no
// surrogates, no overlong forms, nothing above U+10FFFF).
std::size_t Utf8Length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(0);
  if (c < 0x80) return 1;
  std::size_t n = 0;
  unsigned lo = 0x80;
  unsigned hi = 0xBF;
  if (c >= 0xC2 && c <= 0xDF) {
    n = 2;
  } else if (c >= 0xE0 && c <= 0xEF) {
    n = 3;
    if (c == 0xE0) lo = 0xA0;
    if (c == 0xED) hi = 0x9F;
  } else if (c >= 0xF0 && c <= 0xF4) {
    n = 4;
    if (c == 0xF0) lo = 0x90;
    if (c == 0xF4) hi = 0x8F;
  } else {
    return 0;
  }
  if (s.size() < n || byte(1) < lo || byte(1) > hi) return 0;
  for (std::size_t i = 2; i < n; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return n;
}

// Reads a decimal number ("1.5") from the front of `text`; nullopt if there is none.
std::optional<double> TakeNumber(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && ((text[n] >= '0' && text[n] <= '9') || text[n] == '.')) ++n;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + n, value);
  if (n == 0 || error != std::errc() || end != text.data() + n) return std::nullopt;
  text.remove_prefix(n);
  return value;
}

std::string TrimZeros(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", value);
  std::string s = buffer.data();
  if (s.ends_with(".0")) s.resize(s.size() - 2);
  return s;
}

}  // namespace

std::string HexEncode(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

Result<std::string> HexDecode(std::string_view hex) {
  if (hex.size() % 2 != 0) return InvalidArgument("hex: odd number of digits");
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int hi = HexDigit(hex[i]);
    const int lo = HexDigit(hex[i + 1]);
    if (hi < 0 || lo < 0) return InvalidArgument("hex: not a hexadecimal digit");
    out.push_back(static_cast<char>(hi * 16 + lo));
  }
  return out;
}

bool IsValidUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t n = Utf8Length(bytes);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

std::string Printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t n = Utf8Length(bytes);
    const auto c = static_cast<unsigned char>(bytes[0]);
    if (n == 0 || c < 0x20 || c == 0x7F) {
      out += "\xEF\xBF\xBD";
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, n);
      bytes.remove_prefix(n);
    }
  }
  return out;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t start = 0;;) {
    const std::size_t at = text.find(separator, start);
    parts.emplace_back(text.substr(start, at - start));
    if (at == std::string_view::npos) return parts;
    start = at + 1;
  }
}

std::string TrimmedEnd(std::string_view text) {
  return std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

bool GlobMatch(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // last `*`, and where its match began
  std::size_t mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<std::int64_t> ParseSize(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},
                                                                   {"B", 1},
                                                                   {"K", 1024},
                                                                   {"KiB", 1024},
                                                                   {"KB", 1e3},
                                                                   {"M", 1048576.0},
                                                                   {"MiB", 1048576.0},
                                                                   {"MB", 1e6},
                                                                   {"G", 1073741824.0},
                                                                   {"GiB", 1073741824.0},
                                                                   {"GB", 1e9},
                                                                   {"T", 1099511627776.0},
                                                                   {"TiB", 1099511627776.0},
                                                                   {"TB", 1e12}};
  std::string_view rest = text;
  const std::optional<double> number = TakeNumber(rest);
  for (const auto& [suffix, factor] : kUnits) {
    if (number && rest == suffix) {
      const double bytes = *number * factor;
      if (bytes >= static_cast<double>(std::numeric_limits<std::int64_t>::max())) break;
      return static_cast<std::int64_t>(std::llround(bytes));
    }
  }
  return InvalidArgument("\"" + Printable(text) +
                         "\" is not a size: write 512MiB, 24GB or a number of bytes");
}

std::string FormatSize(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return TrimZeros(value) + kUnits[unit];
}

Result<Duration> ParseDuration(std::string_view text) {
  const Status bad = InvalidArgument("\"" + Printable(text) +
                                     "\" is not a duration: write 30s, 10m, 2h, 1d or 1h30m");
  std::string_view rest = text;
  double seconds = 0;
  if (rest.empty()) return bad;
  while (!rest.empty()) {
    const std::optional<double> number = TakeNumber(rest);
    if (!number) return bad;
    double unit = 1;
    if (rest.empty() && *number != 0) {  // of minutes, a reader of 5 is wrong by a factor of 60
      if (seconds != 0) return bad;
      const std::string n = Printable(text);
      return InvalidArgument("\"" + n + "\" has no unit: write " + n + "s, " + n + "m, " + n +
                             "h or " + n + "d");
    }
    if (rest.starts_with("ms")) {
      unit = 1e-3;
      rest.remove_prefix(2);
    } else if (!rest.empty()) {
      switch (rest[0]) {
        case 's': unit = 1; break;
        case 'm': unit = 60; break;
        case 'h': unit = 3600; break;
        case 'd': unit = 86400; break;
        default: return bad;
      }
      rest.remove_prefix(1);
    }
    seconds += *number * unit;
  }
  if (seconds > 1e9) return bad;  // 31 years; keeps nanoseconds in range
  return Duration(std::llround(seconds * 1e9));
}

std::string FormatDuration(Duration d) {
  using std::chrono::duration_cast;
  const auto ms = duration_cast<std::chrono::milliseconds>(d).count();
  if (ms == 0) return "0s";
  if (ms < 1000) return std::to_string(ms) + "ms";
  std::int64_t s = ms / 1000;
  std::string out;
  const auto take = [&](std::int64_t unit, char name) {
    if (s >= unit) {
      out += std::to_string(s / unit) + name;
      s %= unit;
    }
  };
  if (ms < 10000 && ms % 1000 != 0) return TrimZeros(static_cast<double>(ms) / 1000) + "s";
  take(86400, 'd');
  take(3600, 'h');
  take(60, 'm');
  take(1, 's');
  return out;
}

std::string Base64Encode(std::string_view bytes) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t v = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      v = v << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out.push_back(j <= n ? kAlphabet[v >> (18 - 6 * j) & 63] : '=');
    }
  }
  return out;
}

}  // namespace gpulayer
