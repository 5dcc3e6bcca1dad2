// The program at the hook of the network driver (XDP). It answers connect requests (BEP 15), drops what denied networks
// send, and hands the other datagrams for the tracker to the AF_XDP socket of their queue. All other frames go to the
// kernel as they came, among them those whose replies the kernel would not send back to where they came from.
//
// `src/frame/model.rs` is the same in Rust, and a test compares both.
// `cargo xtask bpf --write` builds the object beside this file.

#include "bucket.h"
#include "connection_id.h"
#include "route.h"

// Hands the frame to the socket of its queue, or to the kernel if there is none or if it does not keep up.
INLINE enum outcome hand_over(const struct datagram *datagram, const struct settings *settings) {
    if ((const u8 *)datagram->ethernet + REDIRECTED_MAX < datagram->end)
        return TOO_LONG;
    u32 queue = datagram->context->rx_queue_index;
    struct backlog *backlog = map_lookup(&backlogs, &queue);
    if (!backlog)
        return NO_SOCKET;
    // Other threads write both, so they are read as they are.
    u64 waiting = *(volatile u64 *)&backlog->redirected - *(volatile u64 *)&backlog->consumed;
    if (waiting >= backlog->frames_max)
        return backlog->frames_max ? BACKLOG_FULL : NO_SOCKET;
    if (redirect_map(&sockets, queue, XDP_PASS) != XDP_REDIRECT)
        return NO_SOCKET;
    if (settings->flags & IS_NATIVE)
        *(volatile u64 *)&backlog->redirected += 1;
    else
        __sync_fetch_and_add(&backlog->redirected, 1);
    return REDIRECTED;
}

// Turns the request into its reply, which goes back the way that it came.
INLINE enum outcome answer(const struct datagram *datagram, struct request *request, u64 id) {
    struct ethernet *ethernet = datagram->ethernet;
    u32 words = datagram->words;
    u64 addresses = sum_addresses(datagram);
#pragma unroll
    for (int i = 0; i < 6; i += 2) {
        u16 source = *(u16 *)&ethernet->source[i];
        *(u16 *)&ethernet->source[i] = *(u16 *)&ethernet->destination[i];
        *(u16 *)&ethernet->destination[i] = source;
    }
    u32 udp_bytes = sizeof(struct udp) + sizeof(struct reply);
    if (words == 1) {
        struct ipv4 *ip = datagram->ip;
        ip->version_and_words = 0x45;
        ip->service = 0;
        ip->length = BE16(sizeof(struct ipv4) + udp_bytes);
        ip->id = 0;
        ip->fragment = BE16(0x4000);
        ip->hops = HOPS;
        u64 sum = BE16(0x4500) + BE16(sizeof(struct ipv4) + udp_bytes) + BE16(0x4000) + BE16(HOPS << 8 | PROTOCOL_UDP);
        ip->checksum = ~fold(sum + addresses);
        ip->source = ip->destination;
        ip->destination = datagram->source[0];
    } else {
        struct ipv6 *ip = datagram->ip;
        ip->version_and_flow = BE32(0x60000000);
        ip->length = BE16(udp_bytes);
        ip->hops = HOPS;
        __builtin_memcpy(ip->source, ip->destination, sizeof(ip->source));
        __builtin_memcpy(ip->destination, datagram->source, sizeof(ip->destination));
    }
    struct udp *udp = datagram->udp;
    u16 source = udp->source;
    udp->source = udp->destination;
    udp->destination = source;
    udp->length = BE16(udp_bytes);
    u32 transaction = request->transaction;
    u64 id_be = BE64(id);
    struct reply *reply = (struct reply *)request;
    reply->action = ACTION_CONNECT;
    reply->transaction = transaction;
    reply->id[0] = id_be;
    reply->id[1] = id_be >> 32;
    u64 sum = addresses + BE16(PROTOCOL_UDP) + 2 * BE16(udp_bytes) + udp->source + udp->destination + transaction +
              (u32)id_be + (id_be >> 32);
    u16 checksum = ~fold(sum);
    // 0 would mean that there is none.
    udp->checksum = checksum ? checksum : 0xffff;
    // The rest of the frame is cut off, unless it is padding that the card would have to add again. If that fails, it is padding.
    s64 bytes = (const u8 *)(reply + 1) - (const u8 *)ethernet, present = datagram->end - (const u8 *)ethernet;
    // The compiler would turn the difference of differences into a sum of pointers, which the verifier does not know.
    asm volatile("" : "+r"(bytes), "+r"(present));
    if (bytes < FRAME_MIN)
        bytes = FRAME_MIN;
    if (bytes < present)
        adjust_tail(datagram->context, bytes - present);
    return words == 1 ? CONNECTS_V4 : CONNECTS_V6;
}

// Returns whether the checksum of the datagram is right; or absent; or the sum of the pseudo header alone, as it is if the sender is
// on this host and no hardware has completed it.
INLINE int has_right_checksum(const struct datagram *datagram, const struct request *request) {
    const struct udp *udp = datagram->udp;
    if (!udp->checksum)
        return datagram->words == 1;
    u64 pseudo = sum_addresses(datagram) + BE16(PROTOCOL_UDP) + udp->length;
    u64 sum = pseudo + udp->source + udp->destination + udp->length + udp->checksum +
              sum_words((const u32 *)request, sizeof(*request) / 4);
    if (datagram->payload_bytes > sizeof(*request))
        sum += sum_bytes((const u8 *)(request + 1), datagram->payload_bytes - sizeof(*request), datagram->end);
    return fold(sum) == 0xffff || udp->checksum == fold(pseudo);
}

// Returns the counter of a request over its limit.
INLINE enum outcome limited(const struct datagram *datagram, u32 action) {
    return LIMITED + 2 * action + (datagram->words != 1);
}

INLINE enum outcome serve_connect(const struct datagram *datagram, struct request *request, const struct settings *settings,
                         u32 network, u64 now_ns) {
    if (!(settings->flags & ANSWERS_CONNECTS) || datagram->has_options || datagram->payload_bytes > PAYLOAD_MAX)
        return HANDED_OVER;
    if (!has_right_checksum(datagram, request))
        return BAD_CHECKSUM;
    u64 slot, end_ns;
    if (!present(settings, now_ns, &slot, &end_ns)) {
        count(STALE);
        return HANDED_OVER;
    }
    if (settings->flags & LIMITS_CONNECTS && !(network & NETWORK_EXEMPT) &&
        !takes_token(datagram, settings, 1, now_ns))
        return limited(datagram, ACTION_CONNECT);
    return answer(datagram, request, connection_id(settings->keyed, datagram->source, datagram->words, slot));
}

INLINE enum outcome serve_request(const struct datagram *datagram, struct request *request,
                                  const struct settings *settings, u32 network, u64 now_ns) {
    u32 action = BE32(request->action);
    if (action == ACTION_CONNECT && request->id[0] == BE32(MAGIC_HIGH) && request->id[1] == BE32(MAGIC_LOW))
        return serve_connect(datagram, request, settings, network, now_ns);
    if (!(settings->flags & LIMITS_REQUESTS) || network & NETWORK_EXEMPT ||
        (action != ACTION_ANNOUNCE && action != ACTION_SCRAPE))
        return HANDED_OVER;
    // A forged request uses up no tokens of another source.
    if (is_verified(datagram, request, settings, now_ns) && !takes_token(datagram, settings, 0, now_ns))
        return limited(datagram, action);
    return HANDED_OVER;
}

// Serves a datagram for the tracker. Its lengths are right.
INLINE enum outcome serve(const struct datagram *datagram) {
    const struct settings *settings = datagram->settings;
    // The kernel delivers none of these either, whatever they are counted as.
    if ((datagram->ethernet->destination[0] | datagram->ethernet->source[0]) & 1 ||
        is_loopback(datagram->source, datagram->words))
        return MALFORMED;
    const struct segment *segment = map_lookup(&segments, &datagram->segment);
    if (!segment || !segment->interface_index)
        return OTHER_VLAN;
    if (is_other_mac(datagram->ethernet->destination, segment->mac) ||
        is_own(settings, datagram->source, datagram->words))
        return MALFORMED;
    if (!datagram->udp->source || is_nowhere(datagram->source, datagram->words))
        return UNANSWERABLE;
    u32 network = network_flags(settings, datagram->source, datagram->words);
    if (network & NETWORK_DENIED)
        return DENIED;
    u64 now_ns = ktime_coarse_ns();
    if (!has_route_back(datagram, segment, now_ns))
        return NO_ROUTE_BACK;
    struct request *request = (struct request *)(datagram->udp + 1);
    if (datagram->payload_bytes >= sizeof(*request) && (const u8 *)(request + 1) <= datagram->end) {
        enum outcome outcome = serve_request(datagram, request, settings, network, now_ns);
        if (outcome != HANDED_OVER)
            return outcome;
    }
    return hand_over(datagram, settings);
}

INLINE enum outcome serve_v4(struct datagram *datagram) {
    struct ipv4 *ip = datagram->ip;
    if ((const u8 *)(ip + 1) > datagram->end)
        return NOT_OURS;
    u32 header_bytes = (ip->version_and_words & 0xf) * 4;
    if (ip->version_and_words >> 4 != 4 || header_bytes < sizeof(*ip) || ip->protocol != PROTOCOL_UDP)
        return NOT_OURS;
    struct endpoint endpoint = {.ip = {ip->destination}, .family = 4};
    if (ip->fragment & BE16(0x3fff))
        return if_ours(&endpoint, FRAGMENT);
    struct udp *udp = datagram->ip + header_bytes;
    if ((const u8 *)(udp + 1) > datagram->end)
        return if_ours(&endpoint, MALFORMED);
    endpoint.port = udp->destination;
    if (!is_ours(datagram->settings, &endpoint))
        return NOT_OURS;
    u32 ip_bytes = length_of(ip->length), udp_bytes = length_of(udp->length);
    if ((const u8 *)datagram->ip + ip_bytes > datagram->end || udp_bytes < sizeof(*udp) ||
        ip_bytes != header_bytes + udp_bytes)
        return MALFORMED;
    u64 sum = sum_words(datagram->ip, 5);
    if (header_bytes > sizeof(*ip))
        sum += sum_bytes((const u8 *)(ip + 1), header_bytes - sizeof(*ip), datagram->end);
    if (fold(sum) != 0xffff)
        return BAD_CHECKSUM;
    datagram->udp = udp;
    datagram->endpoint = &endpoint;
    datagram->source[0] = ip->source;
    datagram->words = 1;
    datagram->payload_bytes = udp_bytes - sizeof(*udp);
    datagram->has_options = header_bytes > sizeof(*ip);
    return serve(datagram);
}

INLINE enum outcome serve_v6(struct datagram *datagram) {
    struct ipv6 *ip = datagram->ip;
    if ((const u8 *)(ip + 1) > datagram->end || (ip->version_and_flow & 0xf0) != 0x60)
        return NOT_OURS;
    struct endpoint endpoint = {
        .ip = {ip->destination[0], ip->destination[1], ip->destination[2], ip->destination[3]}, .family = 6};
    switch (ip->protocol) {
    case PROTOCOL_UDP:
        break;
    case PROTOCOL_FRAGMENT:
        return if_ours(&endpoint, FRAGMENT);
    case 0:
    case 43:
    case 51:
    case 60:
    case 135:
    case 139:
    case 140:
        return if_ours(&endpoint, EXTENSION_HEADERS);
    default:
        return NOT_OURS;
    }
    struct udp *udp = (struct udp *)(ip + 1);
    if ((const u8 *)(udp + 1) > datagram->end)
        return if_ours(&endpoint, MALFORMED);
    endpoint.port = udp->destination;
    if (!is_ours(datagram->settings, &endpoint))
        return NOT_OURS;
    u32 udp_bytes = length_of(udp->length);
    if ((const u8 *)udp + udp_bytes > datagram->end || udp_bytes < sizeof(*udp) || ip->length != udp->length)
        return MALFORMED;
    datagram->udp = udp;
    datagram->endpoint = &endpoint;
    __builtin_memcpy(datagram->source, ip->source, sizeof(ip->source));
    datagram->words = 4;
    datagram->payload_bytes = udp_bytes - sizeof(*udp);
    datagram->has_options = 0;
    return serve(datagram);
}

INLINE enum outcome outcome_of(struct xdp_md *context) {
    struct datagram datagram = {
        .context = context, .settings = active_settings(), .end = (const u8 *)(long)context->data_end};
    if (!datagram.settings)
        return NOT_OURS;
    datagram.ethernet = (struct ethernet *)(long)context->data;
    if ((const u8 *)(datagram.ethernet + 1) > datagram.end)
        return NOT_OURS;
    u16 type = datagram.ethernet->type;
    datagram.ip = datagram.ethernet + 1;
    if (type == BE16(TYPE_TAG) || type == BE16(TYPE_PROVIDER_TAG)) {
        struct tag *tag = datagram.ip;
        if ((const u8 *)(tag + 1) > datagram.end)
            return NOT_OURS;
        datagram.segment = (BE16(tag->control) & VLAN_MASK) + (type == BE16(TYPE_TAG) ? 0 : PROVIDER_SEGMENTS);
        type = tag->type;
        datagram.ip = tag + 1;
    }
    if (type == BE16(TYPE_IPV4))
        return serve_v4(&datagram);
    if (type == BE16(TYPE_IPV6))
        return serve_v6(&datagram);
    return NOT_OURS;
}

SECTION("xdp") int shoal(struct xdp_md *context) {
    enum outcome outcome = outcome_of(context);
    if (outcome == NOT_OURS)
        return XDP_PASS;
    count(outcome);
    switch (outcome) {
    case CONNECTS_V4:
    case CONNECTS_V6:
        return XDP_TX;
    case DENIED:
    case UNANSWERABLE:
    case LIMITED ... LIMITED_LAST:
        return XDP_DROP;
    case REDIRECTED:
        return XDP_REDIRECT;
    default:
        return XDP_PASS;
    }
}
