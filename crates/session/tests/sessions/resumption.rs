//! Tickets: they are valid on every worker and after a reload, but not after a restart.

use std::slice;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use shoal_session::tls::{Server, Session};

use crate::identity::{Folder, Identity, Kind};
use crate::peer::{BOTH, Client, TLS_1_3, sealed, transfer, trusting};

const NAME: &str = "tracker.example";

/// Connects and returns whether the session was resumed, on which both sides have to agree.
fn connect(server: &Server, config: &Arc<ClientConfig>) -> bool {
    let mut session = Session::new(server);
    let mut client = Client::new(config, NAME);
    transfer(&mut session, &mut client);
    assert!(!session.is_handshaking());
    let (received, _) = client.read(&sealed(&mut session, b"reply")).unwrap();
    assert_eq!(received, b"reply");
    assert_eq!(session.is_resumed(), client.0.handshake_kind() == Some(HandshakeKind::Resumed));
    session.is_resumed()
}

#[test]
fn tickets_are_good_for_all_clones_and_after_a_reload() {
    let folder = Folder::new();
    let (old, new) = (Identity::new(Kind::P256, &[NAME]), Identity::new(Kind::P256, &[NAME]));
    let (old_files, new_files) = (folder.files("old", &old), folder.files("new", &new));
    for version in BOTH {
        let server = Server::load(slice::from_ref(&old_files)).unwrap();
        let clone = server.for_worker();
        let config = Arc::new(trusting(&[&old.der, &new.der], version));
        assert!(!connect(&server, &config));
        assert!(connect(&clone, &config), "by another worker");
        assert!(connect(&server, &config), "by a ticket of a resumed session");
        clone.reload(slice::from_ref(&new_files)).unwrap();
        assert!(connect(&server, &config), "after a reload");
        let restarted = Server::load(slice::from_ref(&old_files)).unwrap();
        assert!(!connect(&restarted, &config), "after a restart");
    }
}

#[test]
fn one_ticket_is_sent() {
    let folder = Folder::new();
    let identity = Identity::new(Kind::P256, &[NAME]);
    let server = Server::load(&[folder.files("one", &identity)]).unwrap();
    let mut client = Client::new(&Arc::new(trusting(&[&identity.der], TLS_1_3)), NAME);
    transfer(&mut Session::new(&server), &mut client);
    assert_eq!(client.0.tls13_tickets_received(), 1);
}
