// Small conversions between bytes and text that several rooms share.
#ifndef GPULAYER_BASE_TEXT_H_
#define GPULAYER_BASE_TEXT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace gpulayer {

std::string HexEncode(std::string_view bytes);        // lower case
Result<std::string> HexDecode(std::string_view hex);  // INVALID_ARGUMENT: odd length, bad digit

bool IsValidUtf8(std::string_view bytes);
// Bad bytes and control characters become U+FFFD: fit for a terminal line or an error message.
std::string Printable(std::string_view bytes);

std::vector<std::string> Split(std::string_view text, char separator);
std::string TrimmedEnd(std::string_view text);  // without white space at its end
std::string Join(const std::vector<std::string>& parts, std::string_view separator);

// `*` and `?` as in a shell, for names (no `/` rule). Case sensitive.
bool GlobMatch(std::string_view pattern, std::string_view name);

// "512MiB", "24GB", "1.5GiB", "4096": bytes. Binary (KiB MiB GiB TiB, and K M G T) and decimal (KB
// MB GB TB) suffixes. INVALID_ARGUMENT names the text and an example.
Result<std::int64_t> ParseSize(std::string_view text);
std::string FormatSize(std::int64_t bytes);  // "24GiB", "1.5GiB", "17B"

// "30s" "10m" "2h" "1d" "500ms" "90" (seconds) "1h30m". INVALID_ARGUMENT names the text.
Result<Duration> ParseDuration(std::string_view text);
std::string FormatDuration(Duration d);  // "1h30m", "45s", "500ms", "0s"

std::string Base64Encode(std::string_view bytes);  // standard alphabet, padded

}  // namespace gpulayer

#endif  // GPULAYER_BASE_TEXT_H_
