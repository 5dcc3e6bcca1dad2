//! The keys that decide which torrents and clients are served.

use std::path::PathBuf;

use shoal_access::clients::ClientRule;
use shoal_access::ports::Ports;
use shoal_access::rules::{RULES_MAX, Rule};

use super::FILES_MAX;
use crate::declare::settings;
use crate::values::{BlocklistField, ByteSize, HostName, ListSource, Name};

settings! {
    /// Which torrents, networks and clients the tracker serves, for all protocols alike. A change of a file applies at
    /// once. URLs are fetched at an interval, see the section fetch.
    section access: AccessConfig {
        /// Files with the torrents that are served, directories of .torrent files, or URLs; all other torrents are refused. []
        /// serves all torrents. Each line of a file begins with an info hash (40 hexadecimal digits, 32 characters of
        /// base32, or the 64 digits of a v2 torrent) or a magnet link, or with several of them. A date (2026-01-31), a reference
        /// in square brackets, and a reason may follow. Empty lines are ignored, and so is everything from a # on that follows
        /// a hash or a space. JSON arrays, and feeds (RSS, Atom, OPDS) that link torrents are read as well; gzip is
        /// recognised. Faulty lines are left out; a new version with more than 1 % of them is refused.
        torrents_allow: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload, essential;

        /// Files, directories or URLs with the torrents that are refused, in the same formats. This list takes precedence
        /// over torrents_allow. Clients show the reason of an entry to their users.
        torrents_deny: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload, essential;

        /// Publish the list of refused torrents at /blocklist.txt and /blocklist.json, on the addresses of http.listen and
        /// tls.listen. Anyone can then read it, in the format of torrents_deny or as JSON. Each worker serves one download at a
        /// time.
        blocklist_publish: bool = false => Reload;

        /// The parts of each entry that are published with its info hash: "date", "reason" and "reference". References often
        /// name cases or people, so they are left out by default.
        blocklist_fields: Vec<BlocklistField> = vec![BlocklistField::Date, BlocklistField::Reason], in 0..=3 => Reload;

        /// File to which "shoal access add" and "shoal access remove" append a line of JSON for each change: who, when, what
        /// and why. The tracker does so for each change through its control listener. "" writes none.
        audit_file: Option<PathBuf> = None => Reload;

        /// File of the bans that are set through the control listener or earned by sources. The tracker writes it after
        /// each change and reads it at its start. "" stands for the file bans in state.path; without either, no ban is kept.
        bans_file: Option<PathBuf> = None => Reload;

        /// Files or URLs with the networks that are served; all others are refused. [] serves all networks. Each line of a file is
        /// a network (192.0.2.0/24, 2001:db8::/32), an address, or a range of addresses, also in the formats of eMule and
        /// PeerGuardian; gzip is recognised. If networks of both lists contain an address, the longest prefix applies, and
        /// networks_deny if they are equal. Behind a trusted proxy, the address is that of the client.
        networks_allow: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Files or URLs with the networks that are refused, in the same formats.
        networks_deny: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Peer ids of the clients that are served; all others are refused. [] serves all clients. An entry is the
        /// beginning of peer ids, such as "-qB" (%hh is a byte in hexadecimal), or the versions of a client, such as
        /// "qB>=4.6" or "qB>=4.0&<4.6" with the two letters of the Azureus style or the letter of another one. Clients
        /// choose their peer ids, so this keeps out software but no attacker.
        clients_allow: Vec<ClientRule> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Peer ids of the clients that are refused, in the same format. A reason may follow, which clients show to their
        /// users: "qB<4.6 please update". This list takes precedence over clients_allow.
        clients_deny: Vec<ClientRule> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Ports that are never handed out, such as "1-1023" or "25". Otherwise a client could make others connect to a
        /// mail server at its own address. Such a client is served, but no reply contains it, as with port 0.
        ports_deny: Vec<Ports> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Rules about what requests say and where they come from; the first that matches applies. A rule is what it is about, a
        /// pattern, and what happens: "user-agent MonitorBot/* drop", "host *.old.example refuse use tracker.example",
        /// "client -XX drop", "network 192.0.2.0/24 serve", "as 64512 refuse hosting networks are not served", "country ZZ
        /// interval 7200". A refusal may have a reason, which clients show to their users; drop sends no reply, and interval
        /// sets the seconds until the next announce. A pattern with spaces is written in '', and * in a User-Agent stands for
        /// any text. The networks of limits.exempt meet no rule. Clients choose their User-Agent, the host name and their peer
        /// id, so rules about these keep out software but no attacker.
        rules: Vec<Rule> = Vec::new(), in 0..=RULES_MAX => Reload;

        /// The host names that the tracker serves over HTTP, HTTPS and WebSockets, such as "tracker.example". A request for
        /// another name is refused with a reason that names these; one without a name is served. Clients that use an address
        /// in place of a name need it here: an IPv4 address as it is, or an IPv6 address in brackets. [] serves all names. UDP
        /// requests name no host.
        hosts_allow: Vec<HostName> = Vec::new(), in 0..=FILES_MAX => Reload;

        /// Files or URLs with the autonomous system or the country of each network, for the rules about these: a MaxMind DB
        /// (.mmdb), or the lines of DB-IP, GeoLite2 ASN and iptoasn.com; gzip is recognised. Only networks that rules name take
        /// memory.
        geoip: Vec<ListSource> = Vec::new(), in 0..=FILES_MAX => Reload;
    }

    /// Tokens in the URLs of clients, for private trackers: JSON Web Tokens (JWT) that a site signs for its users. A client
    /// shows its token with each announce, in a parameter (/announce?jwt=TOKEN) or in the path (/announce/TOKEN,
    /// /TOKEN/announce). UDP clients repeat the URL in their announces (BEP 41); WebTorrent clients show it when they
    /// connect. A token has the claim exp, and may have nbf, iss, aud, and infohash, a hash or a list of hashes in
    /// the formats of access.torrents_allow, to which it is bound. A client without a valid token may only leave.
    section tokens: TokensConfig {
        /// The file or URL of the public keys, as a JWK set: keys for RS256 (RSA of 2048 to 4096 bits), ES256 (P-256) and
        /// EdDSA (Ed25519). A change of the file applies within a second; tokens by keys that it no longer contains are
        /// refused. A set that cannot be read leaves the keys as they were. A URL is fetched every five minutes,
        /// otherwise as the section fetch says. "" serves clients without tokens.
        jwks: Option<ListSource> = None => Reload;

        /// The issuer that the claim iss of a token must name. "" accepts all tokens that the keys have signed.
        issuer: Option<Name> = None => Reload;

        /// The audience that the claim aud of a token must name. "" accepts only tokens without this claim.
        audience: Option<Name> = None => Reload;

        /// The name of the parameter with the token.
        parameter: Name = Name::from_static("jwt") => Reload;

        /// Refuse clients without a token. With false, these are served, and only tokens that are not valid are refused,
        /// which suits the time before all users have one.
        required: bool = true => Reload;

        /// Whether scrapes need a token, too. UDP clients cannot show one in a scrape, so all their scrapes are refused
        /// then. A full scrape (http.full_scrape) always needs one that is bound to no torrent.
        scrapes: bool = false => Reload;
    }

    /// How the URLs in this configuration are fetched. Between fetches, and while a server is away, the last good copy of
    /// each content applies, also after a restart.
    section fetch: FetchConfig {
        /// The folder of the copies. It is created if it does not exist, and the tracker must be able to write to it. URLs
        /// need it.
        folder: Option<PathBuf> = None => Reload;

        /// Seconds between two fetches of a URL, a tenth more or less by chance. A content that has not changed is not
        /// sent again if the server supports that (ETag, Last-Modified). After a failure, the next attempt comes earlier.
        interval_s: u32 = 900, in 10..=604_800 => Reload;

        /// Maximum time in seconds until a content has arrived as a whole.
        timeout_s: u32 = 60, in 1..=3600 => Reload;

        /// Maximum size of a content, compressed as well as decompressed. A list of ten million info hashes has 410 MB.
        size_max: ByteSize = ByteSize::mib(512), in ByteSize(1024)..=ByteSize::gib(16) => Reload;
    }
}
