#include "worker/exec/spec_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpulayer {
namespace {

// By place: the descriptor of secrets is shared with whoever may give them again.
int ReadWhole(int fd, std::size_t limit, std::string& out) {
  struct stat st{};
  if (fstat(fd, &st) != 0) return errno;
  if (static_cast<std::size_t>(st.st_size) > limit) return EFBIG;
  out.resize(static_cast<std::size_t>(st.st_size));
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t n = pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? EIO : errno;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

void Wipe(std::string& text) {
  explicit_bzero(text.data(), text.size());
  text.clear();
}

}  // namespace

int ReadSpecAt(int dir_fd, AttemptSpec& spec) {
  const int fd = openat(dir_fd, kSpecFile, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  std::string bytes;
  const int error = ReadWhole(fd, kMaxAttemptSpecBytes, bytes);
  close(fd);
  if (error != 0) return error;
  Result<AttemptSpec> read = DecodeSpec(bytes);
  if (!read.ok()) return EBADMSG;
  spec = *std::move(read);
  return 0;
}

int AddSecrets(int secrets_fd, AttemptSpec& spec) {
  if (spec.secrets == 0) return 0;
  if (secrets_fd < 0) return ENOKEY;
  std::string bytes;
  const int error = ReadWhole(secrets_fd, kMaxSecretsFileBytes, bytes);
  Result<std::vector<std::string>> secrets = DecodeSecrets(bytes);
  Wipe(bytes);
  if (error != 0) return error;
  if (!secrets.ok() || static_cast<std::int64_t>(secrets->size()) != spec.secrets) return ENOKEY;
  for (std::string& secret : *secrets) SetVariable(spec, std::move(secret));
  return 0;
}

void SetVariable(AttemptSpec& spec, std::string entry) {
  const std::string name = entry.substr(0, entry.find('=') + 1);
  std::erase_if(spec.env,
                [&name](const std::string& old) { return old.compare(0, name.size(), name) == 0; });
  spec.env.push_back(std::move(entry));
}

void WipeEnvironment(AttemptSpec& spec) {
  for (std::string& entry : spec.env) Wipe(entry);
}

}  // namespace gpulayer
