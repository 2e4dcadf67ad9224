#include "tree/ignore.h"

#include <algorithm>
#include <utility>

namespace gpulayer::tree {
namespace {

// Longer patterns cannot name a path that the kernel takes; they match nothing.
constexpr std::size_t kMaxPattern = 8192;

bool IsSpecial(char c) { return c == '*' || c == '?' || c == '[' || c == '\\'; }

unsigned char Lower(unsigned char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<unsigned char>(c + 32) : c;
}

bool InClass(std::string_view name, unsigned char c, bool* known) {
  const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z',
             digit = c >= '0' && c <= '9';
  const bool graph = c > ' ' && c < 127;
  *known = true;
  if (name == "alnum") return lower || upper || digit;
  if (name == "alpha") return lower || upper;
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "cntrl") return c < ' ' || c == 127;
  if (name == "digit") return digit;
  if (name == "graph") return graph;
  if (name == "lower") return lower;
  if (name == "print") return graph || c == ' ';
  if (name == "punct") return graph && !(lower || upper || digit);
  if (name == "space") return c == ' ' || (c >= '\t' && c <= '\r');
  if (name == "upper") return upper;
  if (name == "xdigit") return digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  *known = false;
  return false;
}

}  // namespace

Wildcard::Wildcard(std::string_view pattern, Case fold) : fold_(fold == Case::kFold) {
  if (pattern.size() > kMaxPattern) {
    never_ = true;
    return;
  }
  std::size_t i = 0;
  while (i < pattern.size() && !never_) {
    const char c = pattern[i];
    if (c == '*') {
      const std::size_t begin = i;
      while (i < pattern.size() && pattern[i] == '*') ++i;
      const bool starts_part = begin == 0 || pattern[begin - 1] == '/';
      const std::string_view after = pattern.substr(i);
      const bool ends_part = after.empty() || after[0] == '/' || after.substr(0, 2) == "\\/";
      if (i - begin >= 2 && starts_part && ends_part) {
        if (!after.empty() && after[0] == '/') tokens_.push_back({Token::Kind::kZeroFolders});
        tokens_.push_back({Token::Kind::kDoubleStar});
      } else {
        tokens_.push_back({Token::Kind::kStar});
      }
    } else if (c == '?') {
      tokens_.push_back({Token::Kind::kAny});
      ++i;
    } else if (c == '[') {
      ++i;
      if (!ParseSet(pattern, &i, fold)) never_ = true;
    } else {
      if (c == '\\' && ++i == pattern.size()) {
        never_ = true;  // git: a backslash at the end is an invalid pattern
        break;
      }
      const auto byte = static_cast<unsigned char>(pattern[i++]);
      tokens_.push_back({Token::Kind::kByte, fold_ ? Lower(byte) : byte});
    }
  }
}

// `*at` stands behind the opening bracket, at the end behind the closing one.
bool Wildcard::ParseSet(std::string_view pattern, std::size_t* at, Case fold) {
  std::size_t i = *at;
  std::bitset<256> set;
  bool negated = false;
  if (i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^')) {
    negated = true;
    ++i;
  }
  int previous = -1;  // a byte that may begin a range
  for (bool first = true;; first = false) {
    if (i >= pattern.size()) return false;
    char c = pattern[i];
    if (c == ']' && !first) break;
    if (c == '-' && previous >= 0 && i + 1 < pattern.size() && pattern[i + 1] != ']') {
      c = pattern[++i];
      if (c == '\\') {
        if (++i >= pattern.size()) return false;
        c = pattern[i];
      }
      for (int b = previous; b <= static_cast<unsigned char>(c); ++b)
        set.set(static_cast<std::size_t>(b));
      previous = -1;
      ++i;
      continue;
    }
    if (c == '[' && i + 1 < pattern.size() && pattern[i + 1] == ':') {
      const std::size_t begin = i + 2;
      const std::size_t end = pattern.find(']', begin);
      if (end == std::string_view::npos) return false;
      if (end > begin && pattern[end - 1] == ':') {
        const std::string_view name = pattern.substr(begin, end - 1 - begin);
        bool known = false;
        for (int b = 0; b < 256; ++b) {
          if (InClass(name, static_cast<unsigned char>(b), &known))
            set.set(static_cast<std::size_t>(b));
        }
        if (!known) return false;
        previous = -1;
        i = end + 1;
        continue;
      }
    } else if (c == '\\') {
      if (++i >= pattern.size()) return false;
      c = pattern[i];
    }
    previous = static_cast<unsigned char>(c);
    set.set(static_cast<std::size_t>(previous));
    ++i;
  }
  if (fold == Case::kFold) {
    for (std::size_t b = 'A'; b <= 'Z'; ++b) {
      if (set[b] || set[b + 32]) set.set(b).set(b + 32);
    }
  }
  if (negated) set.flip();
  set.reset('/');
  sets_.push_back(set);
  tokens_.push_back({Token::Kind::kSet, 0, sets_.size() - 1});
  *at = i + 1;
  return true;
}

// A walk over all positions of the pattern that the text read so far can have reached: no
// backtracking, so no pattern takes exponential time.
bool Wildcard::Matches(std::string_view text) const {
  if (never_) return false;
  const std::size_t n = tokens_.size();
  std::vector<char> here(n + 1, 0), next(n + 1, 0);
  here[0] = 1;
  for (std::size_t t = 0;; ++t) {
    // Stars may match nothing: their successors are reached too. Targets lie ahead, one pass does.
    bool any = false;
    for (std::size_t i = 0; i < n; ++i) {
      if (!here[i]) continue;
      any = true;
      const Token::Kind kind = tokens_[i].kind;
      if (kind == Token::Kind::kStar || kind == Token::Kind::kDoubleStar) here[i + 1] = 1;
      if (kind == Token::Kind::kZeroFolders) here[i + 1] = here[i + 3] = 1;  // past `**` and `/`
    }
    if (t == text.size()) return here[n];
    if (!any) return false;
    auto c = static_cast<unsigned char>(text[t]);
    std::fill(next.begin(), next.end(), 0);
    for (std::size_t i = 0; i < n; ++i) {
      if (!here[i]) continue;
      const Token& token = tokens_[i];
      switch (token.kind) {
        case Token::Kind::kByte:
          if (token.byte == (fold_ ? Lower(c) : c)) next[i + 1] = 1;
          break;
        case Token::Kind::kAny:
          if (c != '/') next[i + 1] = 1;
          break;
        case Token::Kind::kSet:
          if (sets_[token.set][c]) next[i + 1] = 1;
          break;
        case Token::Kind::kStar:
          if (c != '/') next[i] = 1;
          break;
        case Token::Kind::kDoubleStar: next[i] = 1; break;
        case Token::Kind::kZeroFolders: break;
      }
    }
    here.swap(next);
  }
}

IgnoreList::IgnoreList(std::string_view content, Case fold) : fold_(fold == Case::kFold) {
  if (content.substr(0, 3) == "\xEF\xBB\xBF") content.remove_prefix(3);
  while (!content.empty()) {
    const std::size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (!line.empty() && line[0] != '#') {
      if (line.back() == '\r') line.remove_suffix(1);
      AddLine(std::string(line.substr(0, line.find('\0'))));
    }
  }
}

void IgnoreList::AddLine(std::string line) {
  // Spaces at the end go, unless a backslash stands before them.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      if (++i == line.size())
        kept = line.size();  // git keeps all before a lone backslash at the end
      else
        kept = i + 1;
    } else if (line[i] != ' ') {
      kept = i + 1;
    }
  }
  line.resize(kept);

  Rule rule;
  std::string_view pattern = line;
  if (!pattern.empty() && pattern[0] == '!') {
    rule.negated = true;
    pattern.remove_prefix(1);
  }
  if (!pattern.empty() && pattern.back() == '/') {
    rule.only_folders = true;
    pattern.remove_suffix(1);
  }
  rule.any_level = pattern.find('/') == std::string_view::npos;
  if (!rule.any_level && pattern[0] == '/') pattern.remove_prefix(1);
  if (pattern.empty()) return;

  const auto special = static_cast<std::size_t>(
      std::find_if(pattern.begin(), pattern.end(), IsSpecial) - pattern.begin());
  if (special == pattern.size()) {
    rule.literal = std::string(pattern);
  } else if (rule.any_level && pattern[0] == '*' &&
             std::none_of(pattern.begin() + 1, pattern.end(), IsSpecial)) {
    rule.kind = Rule::Kind::kSuffix;
    rule.literal = std::string(pattern.substr(1));
  } else {
    rule.kind = Rule::Kind::kWildcard;
    // As git does: the literal beginning is compared alone, and `**` right behind it counts as a
    // part of its own (`a/b**` matches `a/bc/d`).
    const std::size_t head = rule.any_level ? 0 : special;
    rule.literal = std::string(pattern.substr(0, head));
    rule.rest = Wildcard(pattern.substr(head), fold_ ? Case::kFold : Case::kKeep);
  }
  rules_.push_back(std::move(rule));
}

bool IgnoreList::Same(std::string_view a, std::string_view b) const {
  if (!fold_) return a == b;
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return Lower(static_cast<unsigned char>(x)) == Lower(static_cast<unsigned char>(y));
         });
}

bool IgnoreList::Matches(const Rule& rule, std::string_view path,
                         std::string_view base_name) const {
  const std::string_view text = rule.any_level ? base_name : path;
  const std::size_t length = rule.literal.size();
  switch (rule.kind) {
    case Rule::Kind::kExact: return Same(text, rule.literal);
    case Rule::Kind::kSuffix:
      return text.size() >= length && Same(text.substr(text.size() - length), rule.literal);
    case Rule::Kind::kWildcard:
      return text.size() >= length && Same(text.substr(0, length), rule.literal) &&
             rule.rest.Matches(text.substr(length));
  }
  return false;
}

Verdict IgnoreList::Match(std::string_view path, bool is_folder) const {
  const std::string_view base_name = path.substr(path.rfind('/') + 1);  // npos + 1 == 0
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->only_folders && !is_folder) continue;
    if (Matches(*rule, path, base_name)) {
      return rule->negated ? Verdict::kIncluded : Verdict::kIgnored;
    }
  }
  return Verdict::kNone;
}

bool IgnoreList::ReachesInto(std::string_view folder) const {
  for (const Rule& rule : rules_) {
    if (!rule.negated || rule.any_level) continue;
    const std::string_view literal = rule.literal;
    const std::size_t common = std::min(literal.size(), folder.size());
    if (!Same(literal.substr(0, common), folder.substr(0, common))) continue;
    if (literal.size() > folder.size() ? literal[folder.size()] == '/'
                                       : rule.kind == Rule::Kind::kWildcard) {
      return true;
    }
  }
  return false;
}

RuleChainPtr Extend(RuleChainPtr outer, std::size_t base, IgnoreList list) {
  if (list.empty()) return outer;
  return std::make_shared<RuleChain>(RuleChain{std::move(outer), base, std::move(list)});
}

Verdict Decide(const RuleChain* chain, std::string_view full_path, bool is_folder) {
  for (; chain != nullptr; chain = chain->outer.get()) {
    const Verdict verdict = chain->list.Match(full_path.substr(chain->base), is_folder);
    if (verdict != Verdict::kNone) return verdict;
  }
  return Verdict::kNone;
}

}  // namespace gpulayer::tree
