// The interfaces of the kernel and of the compiler.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define INLINE static inline __attribute__((always_inline))
// For code that is rare, or would be there several times.
#define OUTLINE static __attribute__((noinline))
#define SECTION(name) __attribute__((section(name), used))
#define BE16(x) __builtin_bswap16(x)
#define BE32(x) __builtin_bswap32(x)
#define BE64(x) __builtin_bswap64(x)

// Returns a length in a header. The verifier of Linux 6.1 does not know that it has 16 bits unless it is masked, and the
// compiler would leave out the mask.
INLINE u32 length_of(u16 field) {
    u32 length = BE16(field);
    asm volatile("" : "+r"(length));
    return length & 0xffff;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the object is for little-endian machines");

// The interface of the kernel (`linux/bpf.h`). Its header is not included, so that the object depends on nothing but the
// compiler.

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

enum { XDP_DROP = 1, XDP_PASS = 2, XDP_TX = 3, XDP_REDIRECT = 4 };

enum {
    MAP_HASH = 1,
    MAP_ARRAY = 2,
    MAP_PERCPU_ARRAY = 6,
    MAP_LPM_TRIE = 11,
    MAP_XSKMAP = 17,
    MAP_NO_PREALLOC = 1 << 0,
    MAP_MMAPABLE = 1 << 10,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const redirect_map)(void *map, u64 key, u64 otherwise) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *context, int bytes) = (void *)65;
static long (*const fib_lookup)(struct xdp_md *context, void *parameters, int bytes, u32 flags) = (void *)69;
static u64 (*const ktime_coarse_ns)(void) = (void *)160;

// The type information of a map: the length of an array stands for a number.
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

// An array that only the program reads and writes, one that user space has mapped, and one with a copy for each processor.
#define ARRAY(name, entry, entries) \
    struct { \
        NUMBER(type, MAP_ARRAY); \
        NUMBER(max_entries, entries); \
        TYPE(key, u32); \
        TYPE(value, entry); \
    } name SECTION(".maps")
#define MAPPED_ARRAY(name, entry, entries) \
    struct { \
        NUMBER(type, MAP_ARRAY); \
        NUMBER(map_flags, MAP_MMAPABLE); \
        NUMBER(max_entries, entries); \
        TYPE(key, u32); \
        TYPE(value, entry); \
    } name SECTION(".maps")
#define PERCPU_ARRAY(name, entry, entries) \
    struct { \
        NUMBER(type, MAP_PERCPU_ARRAY); \
        NUMBER(max_entries, entries); \
        TYPE(key, u32); \
        TYPE(value, entry); \
    } name SECTION(".maps")

// The kernel permits `fib_lookup` to programs under the GPL. The licence of MIT, one of the two of this project, permits to
// convey them under it.
SECTION("license") static const char license_text[] = "Dual MIT/GPL";
