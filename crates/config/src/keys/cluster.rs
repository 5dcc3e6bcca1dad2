//! The keys of a cluster.

use std::path::PathBuf;

use crate::declare::settings;
use crate::values::{ClusterName, Name, NatsServer, StreamName};

/// The maximum number of NATS servers in the configuration.
const NATS_SERVERS_MAX: usize = 16;

settings! {
    /// The cluster: several trackers that behave as one over NATS, a message bus (docs/cluster.md). Each node serves from its
    /// own memory, so that it goes on alone while NATS is away.
    section cluster: ClusterConfig {
        /// NATS servers, to one of which the tracker connects; when that one fails, to another. It connects to no servers
        /// but these. "tls://HOST" demands encryption; otherwise, the server decides. The default port is 4222. Users and
        /// passwords have keys of their own. [] is no cluster.
        servers: Vec<NatsServer> = Vec::new(), in 0..=NATS_SERVERS_MAX => Restart;

        /// Name of the cluster. Trackers with the same name, on the same NATS, share their swarms; so the name tells a cluster
        /// from others that use the same servers.
        name: ClusterName = ClusterName::from_static("shoal") => Restart;

        /// Name of this node in the log and the status of all nodes. "" is the host name.
        node: Option<Name> = None => Restart;

        /// Share lists, bans, limits and keys with the other nodes, in a bucket of JetStream. false leaves each node its own.
        shared_state: bool = true => Restart;

        /// JetStream domain of the bucket, for trackers at leaf nodes that have a JetStream of their own. "" is that of the
        /// server.
        jetstream_domain: Option<Name> = None => Restart;

        /// JetStream stream that takes the announces of users, from which another program can credit them (docs/credit.md). A
        /// user is the claim "sub" of a token, so tokens.jwks must be set. The first node creates the stream. "" is none.
        credit_stream: Option<StreamName> = None => Restart;

        /// File of the credentials of a NATS user, as nsc makes it (".creds"), or of the seed of an nkey. Read again at each
        /// connection, as are the files of the password and the token.
        credentials: Option<PathBuf> = None => Restart;

        /// User for NATS servers with passwords, and the file of the password.
        user: Option<Name> = None => Restart;

        /// File whose first line is the password of cluster.user.
        password_file: Option<PathBuf> = None => Restart;

        /// File whose first line is the token, for NATS servers with a token.
        token_file: Option<PathBuf> = None => Restart;

        /// File of certificate authorities (PEM) that may vouch for the NATS servers, instead of those of the system. All
        /// connections are then encrypted.
        tls_ca: Option<PathBuf> = None => Restart;

        /// File of the certificate (PEM) that the tracker shows to NATS servers which ask for one.
        tls_certificate: Option<PathBuf> = None => Restart;

        /// File of its private key (PEM); "" if the key is in the file of the certificate.
        tls_key: Option<PathBuf> = None => Restart;
    }
}
