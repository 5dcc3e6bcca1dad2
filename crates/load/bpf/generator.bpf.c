// A load generator at the driver hook: every reply of the tracker becomes the next request, in the same frame, which is
// sent back. User space writes announces and scrapes into a ring in advance, injects the first frames, reads the counters,
// and replaces frames that were lost. `src/udp/xdp/shared.rs` has the maps in Rust.
//
// Each frame in flight belongs to a slot, which holds the transaction id of its last request. Only the reply with that id
// continues the slot. Requests come from several sources, each with a connection id that the program takes from the
// connect replies.

#include "../../xdp/bpf/headers.h"

static long (*const redirect)(u32 interface, u64 flags) = (void *)23;
static long (*const adjust_head)(struct xdp_md *context, int bytes) = (void *)44;
static u64 (*const ktime_ns)(void) = (void *)5;
static long (*const load_bytes)(struct xdp_md *context, u32 offset, void *to, u32 bytes) = (void *)189;

enum {
    SLOTS = 256,
    SOURCES_MAX = 256,
    // Powers of two.
    RING = 8192,
    SAMPLES = 4096,
    SCRAPE_HASHES_MAX = 10,
    ERROR_BYTES = 64,

    ETHERNET_BYTES = 14,
    HEAD_BYTES = 14 + 20 + 8,
    CONNECT_BYTES = 16,
    ANNOUNCE_BYTES = 98,
    HASH_BYTES = 20,
    COUNTS_BYTES = 12,
    ANNOUNCE_REPLY_BYTES = 20,
    PEER_BYTES = 6,
    PAYLOAD_MAX = CONNECT_BYTES + SCRAPE_HASHES_MAX * HASH_BYTES,

    // A frame that user space injects (IEEE 802, local experimental).
    TYPE_SEED = 0x88b5,
    VERSION_AND_WORDS = 0x45,
    DO_NOT_FRAGMENT = 0x4000,
    FRAGMENT_MASK = 0x3fff,

    // The kind of a request is its action and 1, so that a transaction id is never 0.
    KIND_CONNECT = 1,
    KIND_ANNOUNCE = 2,
    KIND_SCRAPE = 3,

    // One request in so many is timed, less one.
    SAMPLE_MASK = 63,

    // A seed with this slot becomes a connect of a flood.
    FLOOD_SLOT = 0xffff,
    FLOOD_PORT_MIN = 1024,
};

struct seed {
    struct ethernet ethernet;
    u16 slot;
    u32 magic[2];
} __attribute__((packed));

struct control {
    // Requests that user space has written to the ring, and that were taken from it.
    u64 produced;
    u64 consumed;
    // Requests of any kind. Slots end once there were so many.
    u64 sent;
    u64 requests_max;
    u64 sampled;
    // The share of connects, of 2^32.
    u64 connect_chance;
    u32 magic[2];
    u64 random;
    u32 is_stopped;
    u32 server_ip;
    u32 sources;
    u32 peers_max;
    u32 next_source;
    // A flood comes from this network; these are the bits of its hosts. None: there is no flood.
    u32 flood_network;
    u32 flood_hosts;
    u32 padding;
    u16 server_port;
    // Source n has port first_port + n, in the byte order of the host.
    u16 first_port;
    // The header of all requests, taken from a reply to a socket.
    u16 has_ethernet;
    u16 ethernet[ETHERNET_BYTES / 2];
    u32 error_bytes;
    u8 error[ERROR_BYTES];
};

struct source {
    u32 connection_id[2];
    u64 connects;
    u32 ip;
    // Its next request is a connect.
    u32 must_connect;
};

struct slot {
    // In network byte order; 0: nothing is in flight.
    u32 transaction;
    u32 padding;
    // 0: not timed.
    u64 sent_ns;
};

struct request {
    // The sum of the payload in words of two bytes, without its ids.
    u32 sum;
    u16 bytes;
    u8 kind;
    u8 hashes;
    u32 source;
    u32 padding;
    u8 payload[PAYLOAD_MAX];
    u8 unused[24];
};

struct counts {
    // Connects, announces, scrapes.
    u64 requests[3];
    u64 responses[3];
    u64 peers;
    u64 announce_reply_bytes;
    u64 errors;
    u64 malformed;
    u64 action;
    u64 transaction;
    u64 count;
    // Requests that were sent again, because user space was late.
    u64 repeated;
    // Frames that could not become a request.
    u64 failed;
    u64 flooded;
    u64 flood_replies;
};

_Static_assert(sizeof(struct control) == 184 && sizeof(struct source) == 24 && sizeof(struct slot) == 16, "the layout in Rust");
_Static_assert(sizeof(struct request) == 256 && sizeof(struct counts) == 136, "the layout in Rust");

MAPPED_ARRAY(controls, struct control, 1);

MAPPED_ARRAY(sources, struct source, SOURCES_MAX);

MAPPED_ARRAY(slots, struct slot, SLOTS);

MAPPED_ARRAY(requests, struct request, RING);

MAPPED_ARRAY(samples, u64, SAMPLES);

PERCPU_ARRAY(counters, struct counts, 1);

// Draws by SplitMix64. Two processors may draw the same number, which does no harm.
INLINE u32 draw(struct control *control)
{
    u64 state = control->random += 0x9e3779b97f4a7c15;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    return (u32)(state >> 32);
}

INLINE u32 next_source(struct control *control)
{
    u32 source = control->next_source;
    control->next_source = source + 1 < control->sources ? source + 1 : 0;
    return source;
}

// Ends a slot whose frame could not become a request. User space begins it again.
INLINE int end_slot(struct slot *slot, struct counts *counts)
{
    slot->transaction = 0;
    counts->failed += 1;
    return XDP_DROP;
}

// Writes the headers of a request, and returns the sum of what the UDP checksum covers of them.
INLINE u64 write_headers(void *data, struct control *control, u32 source_ip, u16 source_port, u32 payload_bytes)
{
    struct ipv4 *ip = data + ETHERNET_BYTES;
    struct udp *udp = (void *)(ip + 1);
    u16 ip_bytes = BE16((u16)(sizeof(*ip) + sizeof(*udp) + payload_bytes));
    u16 udp_bytes = BE16((u16)(sizeof(*udp) + payload_bytes));
    u64 addresses = (u64)source_ip + control->server_ip;

    for (u32 word = 0; word < ETHERNET_BYTES / 2; word += 1)
        ((u16 *)data)[word] = control->ethernet[word];
    *ip = (struct ipv4){
        .version_and_words = VERSION_AND_WORDS,
        .length = ip_bytes,
        .fragment = BE16(DO_NOT_FRAGMENT),
        .hops = HOPS,
        .protocol = PROTOCOL_UDP,
        .source = source_ip,
        .destination = control->server_ip,
    };
    ip->checksum = ~fold(addresses + BE16(VERSION_AND_WORDS << 8) + ip_bytes + BE16(DO_NOT_FRAGMENT) +
                         BE16(HOPS << 8 | PROTOCOL_UDP));
    udp->source = source_port;
    udp->destination = control->server_port;
    udp->length = udp_bytes;
    return addresses + BE16(PROTOCOL_UDP) + udp_bytes + udp_bytes + source_port + control->server_port;
}

// Writes what an announce of the ring has behind its ids.
INLINE void write_announce(u32 *payload, struct request *request)
{
    u64 *from = (void *)request->payload, *to = (void *)payload;
#pragma clang loop unroll(full)
    for (u32 word = CONNECT_BYTES / 8; word < ANNOUNCE_BYTES / 8; word += 1)
        to[word] = from[word];
    *(u16 *)(to + ANNOUNCE_BYTES / 8) = *(u16 *)(from + ANNOUNCE_BYTES / 8);
}

INLINE void write_scrape(u32 *payload, void *end, struct request *request, u32 hashes)
{
    u32 *from = (void *)(request->payload + CONNECT_BYTES), *to = payload + CONNECT_BYTES / 4;
    for (u32 hash = 0; hash < SCRAPE_HASHES_MAX; hash += 1) {
        if (hash >= hashes || (void *)(to + HASH_BYTES / 4) > end)
            break;
#pragma clang loop unroll(full)
        for (u32 word = 0; word < HASH_BYTES / 4; word += 1)
            to[word] = from[word];
        to += HASH_BYTES / 4;
        from += HASH_BYTES / 4;
    }
}

// Turns the frame into the next request of a slot.
INLINE int send_next(struct xdp_md *context, struct control *control, struct counts *counts, struct slot *slot,
                     u32 slot_number)
{
    u64 number = __sync_fetch_and_add(&control->sent, 1), consumed = control->consumed;
    if (control->is_stopped || number >= control->requests_max) {
        __sync_fetch_and_sub(&control->sent, 1);
        slot->transaction = 0;
        return XDP_DROP;
    }
    struct request *request = 0;
    u32 kind = KIND_CONNECT, payload_bytes = CONNECT_BYTES, hashes = 0;
    if (draw(control) >= control->connect_chance) {
        u32 key = consumed & (RING - 1);
        request = map_lookup(&requests, &key);
    }
    u32 source_number = request ? request->source : next_source(control);
    struct source *source = map_lookup(&sources, &source_number);
    if (!source)
        return end_slot(slot, counts);
    if (request && !source->must_connect && source->connects) {
        kind = request->kind;
        payload_bytes = request->bytes;
        hashes = request->hashes;
        if (consumed >= *(volatile u64 *)&control->produced)
            counts->repeated += 1;
        // Two processors may take the same request, which does no harm.
        control->consumed = consumed + 1;
    } else {
        // The request waits until its source has a connection id.
        request = 0;
        source->must_connect = 0;
    }

    // The frame of a reply has space in front of its headers, but not always behind its end.
    long bytes = (long)context->data_end - (long)context->data;
    // The verifier knows no arithmetic on parts of a pointer.
    asm volatile("" : "+r"(bytes));
    if (adjust_head(context, (int)(bytes - (long)(HEAD_BYTES + payload_bytes))))
        return end_slot(slot, counts);
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    struct udp *udp = data + HEAD_BYTES - sizeof(*udp);
    // Connection id, action, and transaction id: kind (2 bits), hashes (4), a counter (18), slot (8).
    u32 *payload = (void *)(udp + 1);
    if ((void *)(payload + CONNECT_BYTES / 4) > end || (kind == KIND_ANNOUNCE && (void *)payload + ANNOUNCE_BYTES > end))
        return end_slot(slot, counts);
    u32 transaction = BE32(kind << 30 | (hashes & 15) << 26 | (number & 0x3ffff) << 8 | slot_number);
    u16 source_port = BE16((u16)(control->first_port + source_number));
    u64 sum = write_headers(data, control, source->ip, source_port, payload_bytes) + transaction;
    if (!request) {
        payload[0] = BE32(MAGIC_HIGH);
        payload[1] = BE32(MAGIC_LOW);
        counts->requests[0] += 1;
    } else {
        payload[0] = source->connection_id[0];
        payload[1] = source->connection_id[1];
        sum += request->sum;
        // Here, so that the compiler does not move the pointer before its check.
        if (kind == KIND_ANNOUNCE && (void *)payload + ANNOUNCE_BYTES <= end) {
            write_announce(payload, request);
            counts->requests[1] += 1;
        } else {
            write_scrape(payload, end, request, hashes);
            counts->requests[2] += 1;
        }
    }
    payload[2] = BE32(kind - 1);
    payload[3] = transaction;
    u16 checksum = ~fold(sum + payload[0] + payload[1]);
    udp->checksum = checksum ? checksum : 0xffff;
    slot->sent_ns = number & SAMPLE_MASK ? 0 : ktime_ns();
    *(volatile u32 *)&slot->transaction = transaction;
    // A veth ignores XDP_TX unless its peer has a program too, which only some trackers have.
    return redirect(context->ingress_ifindex, 0);
}

// Turns the frame into a connect from a random address of the network of the flood.
INLINE int send_flood(struct xdp_md *context, struct control *control, struct counts *counts)
{
    long bytes = (long)context->data_end - (long)context->data;
    asm volatile("" : "+r"(bytes));
    if (adjust_head(context, (int)(bytes - (long)(HEAD_BYTES + CONNECT_BYTES))))
        return XDP_DROP;
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    struct udp *udp = data + HEAD_BYTES - sizeof(*udp);
    u32 *payload = (void *)(udp + 1);
    if ((void *)(payload + CONNECT_BYTES / 4) > end)
        return XDP_DROP;
    u32 ip = control->flood_network | (draw(control) & control->flood_hosts), random = draw(control);
    u64 sum = write_headers(data, control, ip, BE16((u16)random | FLOOD_PORT_MIN), CONNECT_BYTES);
    payload[0] = BE32(MAGIC_HIGH);
    payload[1] = BE32(MAGIC_LOW);
    payload[2] = 0;
    payload[3] = random;
    u16 checksum = ~fold(sum + payload[0] + payload[1] + payload[3]);
    udp->checksum = checksum ? checksum : 0xffff;
    counts->flooded += 1;
    return redirect(context->ingress_ifindex, 0);
}

INLINE void note_latency(struct control *control, struct slot *slot)
{
    u64 ns = ktime_ns() - slot->sent_ns;
    u32 key = __sync_fetch_and_add(&control->sampled, 1) & (SAMPLES - 1);
    u64 *sample = map_lookup(&samples, &key);
    if (sample)
        *sample = ns;
}

// Counts an error, and keeps the message of the first one.
INLINE void note_error(struct xdp_md *context, struct control *control, struct counts *counts, u32 message_bytes)
{
    counts->errors += 1;
    if (control->error_bytes)
        return;
    if (message_bytes > ERROR_BYTES)
        message_bytes = ERROR_BYTES;
    if (message_bytes > 0 && !load_bytes(context, HEAD_BYTES + 8, control->error, message_bytes))
        control->error_bytes = message_bytes;
}

INLINE void check_announce(struct control *control, struct counts *counts, u32 bytes)
{
    u32 peer_bytes = bytes - ANNOUNCE_REPLY_BYTES, peers = peer_bytes / PEER_BYTES;
    if (bytes < ANNOUNCE_REPLY_BYTES || peers * PEER_BYTES != peer_bytes) {
        counts->malformed += 1;
    } else if (peers > control->peers_max) {
        counts->count += 1;
    } else {
        counts->peers += peers;
        counts->announce_reply_bytes += bytes;
        counts->responses[1] += 1;
    }
}

INLINE void check_connect(struct source *source, struct counts *counts, u32 *payload, void *end, u32 bytes)
{
    if ((void *)(payload + CONNECT_BYTES / 4) > end || bytes != CONNECT_BYTES) {
        counts->malformed += 1;
    } else {
        source->connection_id[0] = payload[2];
        source->connection_id[1] = payload[3];
        source->connects += 1;
        counts->responses[0] += 1;
    }
}

// Takes the way to the tracker from a reply to a socket.
INLINE void learn_ethernet(struct control *control, struct ethernet *ethernet)
{
    if (control->has_ethernet)
        return;
    __builtin_memcpy(control->ethernet, ethernet->source, 6);
    __builtin_memcpy(control->ethernet + 3, ethernet->destination, 6);
    control->ethernet[6] = ethernet->type;
    control->has_ethernet = 1;
}

// Takes a reply to a request of the program.
INLINE int take_reply(struct xdp_md *context, struct control *control, struct counts *counts, u32 source_number)
{
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    struct ipv4 *ip = data + ETHERNET_BYTES;
    struct udp *udp = (void *)(ip + 1);
    // Action and transaction id begin every reply.
    u32 *payload = (void *)(udp + 1);
    if ((void *)(payload + 2) > end)
        return XDP_DROP;
    u32 bytes = BE16(udp->length) - (u32)sizeof(*udp), available = (u32)((long)end - (long)payload);
    if (bytes < 8 || bytes > available) {
        counts->malformed += 1;
        return XDP_DROP;
    }
    u32 transaction = payload[1], id = BE32(transaction), action = BE32(payload[0]), slot_number = id & (SLOTS - 1);
    struct slot *slot = map_lookup(&slots, &slot_number);
    struct source *source = map_lookup(&sources, &source_number);
    if (!slot || !source || ip->destination != source->ip || *(volatile u32 *)&slot->transaction != transaction) {
        counts->transaction += 1;
        return XDP_DROP;
    }
    if (slot->sent_ns)
        note_latency(control, slot);
    if (action == ACTION_ERROR) {
        note_error(context, control, counts, bytes - 8);
        // A refusal may be due to an old connection id.
        source->must_connect = 1;
    } else if (action + 1 != id >> 30) {
        counts->action += 1;
    } else if (action == ACTION_CONNECT) {
        check_connect(source, counts, payload, end, bytes);
    } else if (action == ACTION_ANNOUNCE) {
        check_announce(control, counts, bytes);
    } else if (bytes != 8 + COUNTS_BYTES * (id >> 26 & 15)) {
        counts->count += 1;
    } else {
        counts->responses[2] += 1;
    }
    return send_next(context, control, counts, slot, slot_number);
}

SECTION("xdp")
int generate(struct xdp_md *context)
{
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    u32 zero = 0;
    struct control *control = map_lookup(&controls, &zero);
    struct counts *counts = map_lookup(&counters, &zero);
    struct ethernet *ethernet = data;
    struct ipv4 *ip = data + ETHERNET_BYTES;
    struct udp *udp = (void *)(ip + 1);
    if (!control || !counts || (void *)(udp + 1) > end)
        return XDP_PASS;
    if (ethernet->type == BE16(TYPE_SEED)) {
        struct seed *seed = data;
        u32 slot_number = seed->slot;
        struct slot *slot = map_lookup(&slots, &slot_number);
        if (seed->magic[0] != control->magic[0] || seed->magic[1] != control->magic[1])
            return XDP_PASS;
        if (!slot)
            return slot_number == FLOOD_SLOT ? send_flood(context, control, counts) : XDP_PASS;
        return send_next(context, control, counts, slot, slot_number);
    }
    if (ethernet->type != BE16(TYPE_IPV4) || ip->version_and_words != VERSION_AND_WORDS || ip->protocol != PROTOCOL_UDP ||
        ip->fragment & BE16(FRAGMENT_MASK) || ip->source != control->server_ip || udp->source != control->server_port)
        return XDP_PASS;
    u32 source_number = (u16)(BE16(udp->destination) - control->first_port);
    if (source_number < control->sources)
        return take_reply(context, control, counts, source_number);
    if (control->flood_hosts && (ip->destination & ~control->flood_hosts) == control->flood_network) {
        counts->flood_replies += 1;
        return XDP_DROP;
    }
    learn_ethernet(control, ethernet);
    return XDP_PASS;
}

// Drops what comes from the network of the flood, and passes everything else on. It is about the least that a program can do.
SECTION("xdp")
int discard(struct xdp_md *context)
{
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    u32 zero = 0;
    struct control *control = map_lookup(&controls, &zero);
    struct ethernet *ethernet = data;
    struct ipv4 *ip = data + ETHERNET_BYTES;
    if (!control || (void *)(ip + 1) > end || ethernet->type != BE16(TYPE_IPV4) || !control->flood_hosts)
        return XDP_PASS;
    return (ip->source & ~control->flood_hosts) == control->flood_network ? XDP_DROP : XDP_PASS;
}
