/* grpc_types: the messages and methods of proto/grpc/ as data, which tools/proto_gen.c makes of
 * what protoc says of them. Numbers and names stand in those files alone. */
#ifndef BATON_GRPC_GRPC_TYPES_H
#define BATON_GRPC_GRPC_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of descriptor.proto. */
enum grpc_type {
    GRPC_DOUBLE = 1,
    GRPC_FLOAT,
    GRPC_INT64,
    GRPC_UINT64,
    GRPC_INT32,
    GRPC_FIXED64,
    GRPC_FIXED32,
    GRPC_BOOL,
    GRPC_STRING,
    GRPC_MESSAGE = 11,
    GRPC_BYTES,
    GRPC_UINT32,
    GRPC_ENUM,
    GRPC_SFIXED32,
    GRPC_SFIXED64,
    GRPC_SINT32,
    GRPC_SINT64,
};

struct grpc_message;

struct grpc_value {
    const char *name;
    int32_t number;
};
struct grpc_enum {
    const struct grpc_value *values; /* [n] */
    unsigned n;
};

struct grpc_field {
    const char *name;
    uint32_t number;
    enum grpc_type type;
    bool repeated;
    bool presence; /* a value of zero is written too: optional, or one of a oneof */
    const struct grpc_message *message; /* of GRPC_MESSAGE */
    const struct grpc_enum *values;     /* of GRPC_ENUM */
};

/* How a message looks as JSON. */
enum grpc_kind {
    GRPC_OBJECT,
    GRPC_MAP_ENTRY,  /* {key: value}, of all entries together */
    GRPC_ANY_OBJECT, /* google.protobuf.Struct */
    GRPC_ANY_VALUE,  /* google.protobuf.Value */
    GRPC_ANY_LIST,   /* google.protobuf.ListValue */
};

enum { GRPC_FIELDS_MAX = 32 }; /* of a message; tools/proto_gen refuses more */

struct grpc_message {
    const char *name; /* with its package */
    enum grpc_kind kind;
    const struct grpc_field *fields; /* [n_fields] by number */
    unsigned n_fields;
};

struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    const struct grpc_message *in, *out;
    bool client_streams, server_streams;
};

struct grpc_file {
    const char *name;
    const unsigned char *descriptor; /* [descriptor_bytes] a FileDescriptorProto */
    size_t descriptor_bytes;
    const char *text; /* [text_bytes] the file itself */
    size_t text_bytes;
    const char *const *imports; /* names; ends with NULL */
    const char *const *symbols; /* full names of what it defines; ends with NULL */
};

/* Messages are grpc_<package>_<name>; those that code names: */
extern const struct grpc_message grpc_fmaas_GenerationResponse,
    grpc_fmaas_BatchedGenerationResponse, grpc_caikit_data_model_nlp_GeneratedTextResult,
    grpc_caikit_data_model_nlp_GeneratedTextStreamResult, grpc_inference_ModelInferResponse,
    grpc_inference_ModelStreamInferResponse;

extern const struct grpc_method grpc_methods[]; /* ends with path NULL */
extern const char *const grpc_services[];       /* full names; ends with NULL */
extern const struct grpc_file grpc_files[];     /* ends with name NULL */

#endif
