// How sizes, durations, times, names of tasks and bytes are written: the same on every surface.
//
// Threads:   any. Nothing waits (ReadEnvFile reads a file) or throws.
// Errors:    INVALID_ARGUMENT names the text and shows a right one.
#ifndef GPULAYER_TEXT_H_
#define GPULAYER_TEXT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulayer/client.h"
#include "gpulayer/export.h"
#include "gpulayer/status.h"

namespace gpulayer {
GPULAYER_API_BEGIN

GPULAYER_EXPORT Result<std::int64_t> ParseSize(
    std::string_view text);                                  // "512MiB", "24GB", "1.5GiB": bytes
GPULAYER_EXPORT std::string FormatSize(std::int64_t bytes);  // "512MiB"
GPULAYER_EXPORT Result<std::chrono::milliseconds> ParseDuration(
    std::string_view text);                                               // "30s" "10m" "2h" "1d"
GPULAYER_EXPORT std::string FormatDuration(std::chrono::milliseconds d);  // "1h30m"
GPULAYER_EXPORT std::string FormatTime(
    Time t);  // local, with offset: "2026-03-01T14:05:09.123456+01:00"
GPULAYER_EXPORT Result<TaskSelector> ParseTask(std::string_view text);  // "42" or "42.7"
// K=V lines; empty ones and those that begin with # are skipped; what follows = is the value as it
// stands. Reads the file: INVALID_ARGUMENT names the line, NOT_FOUND the file.
GPULAYER_EXPORT Result<std::vector<std::pair<std::string, std::string>>> ReadEnvFile(
    const std::string& path);
// What `--secret` takes: "NAME", the value of this process's environment variable; "NAME=@FILE", all of
// the file; "NAME=-", all of standard input, or the line that is typed on a terminal. A line end behind
// it is no part of it. INVALID_ARGUMENT: anything else, a value in the text among it, which is not
// repeated; one that is not set or empty. NOT_FOUND the file. RESOURCE_EXHAUSTED over 64 KiB.
GPULAYER_EXPORT Result<std::pair<std::string, std::string>> ReadSecret(std::string_view text);
// "0-99", "0-99:2" (each second one), "7", each with "%4" behind it: at most 4 at work at a time.
struct ArrayText {
  TaskRange tasks;
  std::int64_t max_parallel = 0;
};
GPULAYER_EXPORT Result<ArrayText> ParseArray(std::string_view text);
// Each line of the file, "-" for standard input; empty ones too. Reads it: RESOURCE_EXHAUSTED over
// 256 MiB.
GPULAYER_EXPORT Result<std::vector<std::string>> ReadItems(const std::string& path);
GPULAYER_EXPORT bool IsValidUtf8(std::string_view bytes);
GPULAYER_EXPORT std::string Printable(
    std::string_view bytes);  // bad bytes and control characters replaced
GPULAYER_EXPORT std::string Base64Encode(std::string_view bytes);  // standard alphabet, padded

GPULAYER_API_END
}  // namespace gpulayer

#endif  // GPULAYER_TEXT_H_
