// What goes to the terminal: errors, lines about what happens, tables, raw bytes.
#ifndef GPULAYER_CLI_PRINT_H_
#define GPULAYER_CLI_PRINT_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulayer/host.h"
#include "gpulayer/job_info.h"
#include "gpulayer/status.h"

namespace gpulayer::cli {

// "gpulayer: <message>" to standard error.
void PrintError(const Status& status);
void PrintNote(const std::string& line);
// The same, and which help to read.
void PrintUsageError(const std::string& what, const std::string& verb);
// What the server says in the middle of a job's log, without the line end it brings along.
void PrintLogNote(std::string_view note);

// All of it to standard output; false: it could not be written, which OutputError() tells too.
bool PrintOut(std::string_view text);
// Of the first PrintOut that failed; OK: none did.
Status OutputError();
// "standard output: No space left on device" of a descriptor that could not be written to.
std::string WriteErrorText(int fd, int error);

// Columns as wide as they need to be, two spaces between; nothing behind the last one. Cells are
// made fit for a terminal.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "name:  value" lines, values aligned.
std::string Fields(const std::vector<std::pair<std::string, std::string>>& fields);

// For people, to the second: "2026-03-01 14:05:09 +01:00". Documents have FormatTime's
// microseconds.
std::string TimeText(Time t);
std::string TimeText(const std::optional<Time>& t);  // empty if there is none

// The words as a shell would have to be given them.
std::string ShellWords(const std::vector<std::string>& words);

// "waits (4s): no worker": without "(4s)", to tell whether there is news.
std::string WithoutDuration(const std::string& text);

// Of a job that is over: how many outputs, and where they are or how to get them. `brought`: where to,
// if they were.
std::string OutputsText(const JobInfo& job, const std::optional<std::string>& brought);

// "left out a.bin (5GiB): over the limit" of each; `count` is of all, there may be more than are
// named.
std::vector<std::string> LeftOutLines(const std::vector<LeftOutFile>& files, std::int64_t count);
// Of each attempt that left its work folder on its worker: where.
std::vector<std::string> KeptLines(const JobInfo& job);

// "valid", "until DATE", "expired DATE", "revoked DATE".
std::string TokenState(const TokenInfo& token, Time now);

// Names of workers, with their ids where two have one name; in the order given.
std::vector<std::string> WorkerNames(const std::vector<WorkerInfo>& workers);

// Of `up`: what runs now, and the lines for other machines.
std::string UpText(const UpReport& report);

bool IsTerminal(int fd);

// A job's bytes to a descriptor of ours. Into a file or pipe they go as they are; on a terminal
// what is not UTF-8 becomes a replacement mark (a character cut between two pieces is waited for).
class ByteSink {
 public:
  explicit ByteSink(int fd) : fd_(fd), terminal_(IsTerminal(fd)) {}
  ByteSink(int fd, bool terminal) : fd_(fd), terminal_(terminal) {}  // for tests
  bool Write(std::string_view bytes);  // false: it could not be written, see error()
  bool Finish();                       // a character that stays cut
  int fd() const { return fd_; }
  int error() const { return error_; }  // errno of the first write that failed; 0: none did

 private:
  bool WriteRaw(std::string_view bytes);

  const int fd_;
  const bool terminal_;
  std::string cut_;
  int error_ = 0;
};

}  // namespace gpulayer::cli

#endif  // GPULAYER_CLI_PRINT_H_
