#include "cli/print.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "gpulayer/text.h"

namespace gpulayer::cli {
namespace {

constexpr char kMark[] = "\xEF\xBF\xBD";  // U+FFFD

int out_errno = 0;  // of the first answer that could not be written; the main thread's

bool WriteFd(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n > 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      // Somebody made the pipe or terminal non-blocking: it is full, not gone.
      pollfd p{fd, POLLOUT, 0};
      ::poll(&p, 1, -1);
    } else if (n < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

// How many bytes the character at the front of `s` has: 0 if it cannot be one, and more than
// s.size() if it may go on.
std::size_t CharacterSize(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  std::size_t size = 1;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) {
    size = 2;
  } else if (byte(0) >= 0xE0 && byte(0) <= 0xEF) {
    size = 3;
  } else if (byte(0) >= 0xF0 && byte(0) <= 0xF4) {
    size = 4;
  } else {
    return 0;
  }
  for (std::size_t i = 1; i < size && i < s.size(); ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (s.size() >= size && !IsValidUtf8(s.substr(0, size))) return 0;
  return size;
}

// Characters of two columns: those of East Asia, and pictures.
constexpr std::pair<unsigned, unsigned> kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97C},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FC}, {0x1F900, 0x1F9FF},
    {0x20000, 0x3FFFD},
};

// Columns on a terminal. REQUIRES: UTF-8.
std::size_t Width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = std::max<std::size_t>(CharacterSize(text.substr(i)), 1);
    unsigned code = static_cast<unsigned char>(text[i]) & (size == 1 ? 0x7F : 0xFF >> (size + 1));
    for (std::size_t j = 1; j < size && i + j < text.size(); ++j) {
      code = code << 6 | (static_cast<unsigned char>(text[i + j]) & 0x3F);
    }
    const bool wide = std::any_of(std::begin(kWide), std::end(kWide), [code](const auto& range) {
      return code >= range.first && code <= range.second;
    });
    const bool combining = code >= 0x300 && code <= 0x36F;
    width += combining ? 0 : wide ? 2 : 1;
    i += size;
  }
  return width;
}

void Err(const std::string& text) {
  // Nobody to tell if that fails: the terminal is gone.
  (void)WriteFd(STDERR_FILENO, text);
}

}  // namespace

void PrintNote(const std::string& line) { Err("gpulayer: " + line + "\n"); }

void PrintLogNote(std::string_view note) {
  while (!note.empty() && note.back() == '\n') note.remove_suffix(1);
  PrintNote(Printable(note));
}

void PrintError(const Status& status) { PrintNote(status.message()); }

void PrintUsageError(const std::string& what, const std::string& verb) {
  const bool ended = !what.empty() && (what.back() == '.' || what.back() == '?');
  PrintNote(what + (ended ? " " : ". ") + "See `gpulayer " + (verb.empty() ? "" : verb + " ") +
            "--help`.");
}

bool PrintOut(std::string_view text) {
  if (WriteFd(STDOUT_FILENO, text)) return true;
  if (out_errno == 0) out_errno = errno;
  return false;
}

Status OutputError() {
  if (out_errno == 0) return Status();
  return Status(StatusCode::kUnavailable,
                WriteErrorText(STDOUT_FILENO, out_errno) +
                    ". The answer above may be cut; the verb itself was carried out.");
}

std::string WriteErrorText(int fd, int error) {
  return std::string(fd == STDERR_FILENO ? "standard error: " : "standard output: ") +
         std::strerror(error);
}

std::string Table::ToText() const {
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> rows = rows_;
  for (auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = row[i].empty() ? "-" : Printable(row[i]);
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out += std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string TimeText(Time t) {
  std::string text = FormatTime(t);
  constexpr std::size_t kLength = 32;  // 2026-03-01T14:05:09.123456+01:00
  if (text.size() != kLength) return text;
  return text.substr(0, 10) + " " + text.substr(11, 8) + " " + text.substr(26);
}

std::string TimeText(const std::optional<Time>& t) { return t ? TimeText(*t) : ""; }

std::string Fields(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, name.size());
  std::string out;
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    out += name + ":" + std::string(width - name.size() + 2, ' ') + Printable(value) + "\n";
  }
  return out;
}

std::string ShellWords(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$*?[]{}()<>|&;~`!#") == std::string::npos;
    std::string quoted = word;
    if (!plain) {
      quoted = "'";
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      quoted += "'";
    }
    out += (out.empty() ? "" : " ") + quoted;
  }
  return out;
}

std::string WithoutDuration(const std::string& text) {
  const std::string kBefore = "waits (";
  const std::size_t at = text.find(kBefore);
  if (at == std::string::npos) return text;
  const std::size_t end = text.find(':', at);
  return end == std::string::npos ? text : text.substr(0, at) + "waits" + text.substr(end);
}

std::string OutputsText(const JobInfo& job, const std::optional<std::string>& brought) {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  for (const TaskInfo& task : job.tasks) {
    files += task.output_files;
    bytes += task.output_bytes;
  }
  const std::string amount =
      std::to_string(files) + (files == 1 ? " output, " : " outputs, ") + FormatSize(bytes);
  if (brought && !brought->empty()) return amount + ", in " + Printable(*brought) + "\n";
  if (brought || files == 0) return "no outputs\n";
  const std::string get = "`gpulayer job result " + std::to_string(job.id);
  return amount + ": " + get + " --download` (into the run folder) or " + get + " --to DIR`\n";
}

std::vector<std::string> KeptLines(const JobInfo& job) {
  std::vector<std::string> out;
  for (const TaskInfo& task : job.tasks) {
    for (const AttemptInfo& a : task.attempts) {
      if (a.kept_folder.empty()) continue;
      out.push_back("work folder of " + std::to_string(job.id) + "." + std::to_string(task.index) +
                    "#" + std::to_string(a.number) + " kept on " + Printable(a.worker) + ": " +
                    Printable(a.kept_folder));
    }
  }
  return out;
}

std::vector<std::string> LeftOutLines(const std::vector<LeftOutFile>& files, std::int64_t count) {
  std::vector<std::string> out;
  std::map<std::string, int> times;  // of many tasks each may have left out the same
  for (const LeftOutFile& file : files) {
    const std::string size = file.size_bytes > 0 ? " (" + FormatSize(file.size_bytes) + ")" : "";
    std::string line = "left out " + Printable(file.path) + size + ": " + Printable(file.reason);
    if (++times[line] == 1) out.push_back(std::move(line));
  }
  for (std::string& line : out) {
    if (const int n = times[line]; n > 1) line += " (" + std::to_string(n) + " times)";
  }
  const auto more = count - static_cast<std::int64_t>(files.size());
  if (more > 0) out.push_back("left out " + std::to_string(more) + " more");
  return out;
}

std::string TokenState(const TokenInfo& token, Time now) {
  if (token.revoked) return "revoked " + TimeText(*token.revoked);
  if (!token.expires) return "valid";
  return (*token.expires <= now ? "expired " : "until ") + TimeText(*token.expires);
}

std::vector<std::string> WorkerNames(const std::vector<WorkerInfo>& workers) {
  std::map<std::string, int> count;
  for (const WorkerInfo& w : workers) ++count[w.name];
  std::vector<std::string> out;
  out.reserve(workers.size());
  for (const WorkerInfo& w : workers) {
    out.push_back(count[w.name] == 1 ? w.name : w.name + " (" + w.id + ")");
  }
  return out;
}

std::string UpText(const UpReport& report) {
  std::string out = "GPUlayer is up, in " + report.data_dir + "\n";
  if (report.was_up && report.restarted.empty()) {
    out = "GPUlayer was up already, in " + report.data_dir + "\n";
  } else if (report.was_up) {
    std::string names;
    for (const std::string& name : report.restarted) names += (names.empty() ? "" : " and ") + name;
    out = "started the " + names + " again, which had ended. " + out;
  }
  if (!report.worker) {
    out += "server only; for a worker too: `gpulayer down`, then `gpulayer up --worker`\n";
  }
  if (report.addresses.empty()) return out;
  if (report.only_here) {
    const std::string& address = report.addresses.front();
    return out + "\nOnly this machine reaches it (" + address +
           "). For other machines: `gpulayer down`, then `gpulayer up --listen 0.0.0.0" +
           address.substr(address.rfind(':')) + "`\n";
  }
  out += "\nTo make another machine a worker of it (the token is good for 24h):\n";
  for (const std::string& address : report.addresses) {
    out += "  gpulayer join " + address + " --token " + report.join_token + "\n";
  }
  out += "\nTo submit from another machine:\n";
  for (const std::string& address : report.addresses) {
    out += "  gpulayer login " + address + " --token " + report.login_token + "\n";
  }
  return out;
}

bool IsTerminal(int fd) { return ::isatty(fd) == 1; }

bool ByteSink::Write(std::string_view bytes) {
  if (!terminal_) return WriteRaw(bytes);
  std::string data = cut_ + std::string(bytes);
  cut_.clear();
  std::string out;
  std::string_view rest = data;
  while (!rest.empty()) {
    const std::size_t size = CharacterSize(rest);
    if (size > rest.size()) {
      cut_ = rest;
      break;
    }
    if (size == 0) {
      out += kMark;
      rest.remove_prefix(1);
    } else {
      out += rest.substr(0, size);
      rest.remove_prefix(size);
    }
  }
  return WriteRaw(out);
}

bool ByteSink::Finish() {
  if (cut_.empty()) return true;
  cut_.clear();
  return WriteRaw(kMark);
}

bool ByteSink::WriteRaw(std::string_view bytes) {
  if (WriteFd(fd_, bytes)) return true;
  if (error_ == 0) error_ = errno;
  return false;
}

}  // namespace gpulayer::cli
