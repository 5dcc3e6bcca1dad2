// Headers of frames, the numbers in them, and checksums. The load generator uses them as well.
#pragma once

#include "kernel.h"

// Fields of more than one byte are in network byte order.

struct ethernet {
    u8 destination[6];
    u8 source[6];
    u16 type;
};

struct tag {
    u16 control;
    u16 type;
};

struct ipv4 {
    u8 version_and_words;
    u8 service;
    u16 length;
    u16 id;
    u16 fragment;
    u8 hops;
    u8 protocol;
    u16 checksum;
    u32 source;
    u32 destination;
};

struct ipv6 {
    u32 version_and_flow;
    u16 length;
    u8 protocol;
    u8 hops;
    u32 source[4];
    u32 destination[4];
};

struct udp {
    u16 source;
    u16 destination;
    u16 length;
    u16 checksum;
};

_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct tag) == 4, "headers of Ethernet");
_Static_assert(sizeof(struct ipv4) == 20 && sizeof(struct ipv6) == 40 && sizeof(struct udp) == 8, "headers of IP");

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_IPV6 = 0x86dd,
    TYPE_TAG = 0x8100,
    TYPE_PROVIDER_TAG = 0x88a8,
    PROTOCOL_UDP = 17,
    PROTOCOL_FRAGMENT = 44,
    HOPS = 64,
};

// The actions of requests and replies, and the number that marks a connect request (BEP 15).
enum { ACTION_CONNECT, ACTION_ANNOUNCE, ACTION_SCRAPE, ACTION_ERROR };
enum { MAGIC_HIGH = 0x417, MAGIC_LOW = 0x27101980 };

// Checksums: sums of words of 16 or 32 bits, in the order of the machine, which gives the same bytes (RFC 1071, 2 B).

INLINE u16 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}
