#include "wire/tree.h"

#include "gpulayer/v1/common.pb.h"
#include "wire/convert.h"

namespace gpulayer::wire {

std::string SerializeTree(const Tree& tree) {
  pb::Tree out;
  for (const TreeEntry& entry : tree.entries) {
    pb::Tree::Entry* e = out.add_entries();
    e->set_path(entry.path);
    e->set_type(static_cast<std::int32_t>(entry.type));
    e->set_mode(entry.mode);
    e->set_size(entry.size);
    e->set_hash(HashToBytes(entry.hash));
    e->set_link_target(entry.link_target);
  }
  out.set_ignore_prefix(tree.ignore.prefix);
  for (const IgnoreRules::File& file : tree.ignore.files) {
    pb::Tree::IgnoreFile* f = out.add_ignore_files();
    f->set_dir(file.dir);
    f->set_content(file.content);
  }
  out.set_ignore_overriding(tree.ignore.overriding);
  for (const std::string& root : tree.ignore.nested_roots) out.add_ignore_nested_roots(root);
  out.set_ignore_fold_case(tree.ignore.fold_case);
  return out.SerializeAsString();  // no maps inside: the bytes depend on the fields alone
}

Result<Tree> ParseTree(std::string_view bytes) {
  pb::Tree in;
  if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("tree: not a manifest");
  }
  Tree out;
  out.entries.reserve(static_cast<std::size_t>(in.entries_size()));
  for (const pb::Tree::Entry& e : in.entries()) {
    if (!out.entries.empty() && !(out.entries.back().path < e.path())) {
      return InvalidArgument("tree: entries are not in order");
    }
    TreeEntry entry;
    entry.path = e.path();
    entry.type = static_cast<EntryType>(e.type());
    entry.mode = e.mode();
    entry.size = e.size();
    GPULAYER_ASSIGN_OR_RETURN(entry.hash, HashFromBytes(e.hash(), "tree entry"));
    entry.link_target = e.link_target();
    out.entries.push_back(std::move(entry));
  }
  out.ignore.prefix = in.ignore_prefix();
  for (const pb::Tree::IgnoreFile& f : in.ignore_files()) {
    out.ignore.files.push_back({f.dir(), f.content()});
  }
  out.ignore.overriding = in.ignore_overriding();
  out.ignore.nested_roots.assign(in.ignore_nested_roots().begin(), in.ignore_nested_roots().end());
  out.ignore.fold_case = in.ignore_fold_case();
  return out;
}

}  // namespace gpulayer::wire
