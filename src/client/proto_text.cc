#include "client/proto_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace gpulayer::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// As people know it: request_id is --request-id.
std::string NameOf(const FieldDescriptor& field) {
  std::string name = field.name();
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Status CheckOne(const FieldDescriptor& field, const std::string& text) {
  if (!IsValidUtf8(text)) {
    return InvalidArgument(NameOf(field) + " \"" + Printable(text) + "\": it is not UTF-8 text");
  }
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument(NameOf(field) + " \"" + Printable(text) + "\": it holds a NUL byte");
  }
  return OkStatus();
}

Status Check(const Message& message) {
  const Reflection& in = *message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  in.ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    const bool text = field->type() == FieldDescriptor::TYPE_STRING;
    const bool inner = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!text && !inner) continue;
    const int count = field->is_repeated() ? in.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (inner) {
        GPULAYER_RETURN_IF_ERROR(Check(field->is_repeated()
                                           ? in.GetRepeatedMessage(message, field, i)
                                           : in.GetMessage(message, field)));
        continue;
      }
      GPULAYER_RETURN_IF_ERROR(CheckOne(*field, field->is_repeated()
                                                    ? in.GetRepeatedString(message, field, i)
                                                    : in.GetString(message, field)));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckText(const google::protobuf::MessageLite& message) {
  const auto* whole = dynamic_cast<const Message*>(&message);
  return whole == nullptr ? OkStatus() : Check(*whole);
}

}  // namespace gpulayer::client
