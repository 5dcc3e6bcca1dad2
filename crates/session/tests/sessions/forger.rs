//! A client that completes its handshake and then writes invalid records.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion, SupportedProtocolVersion};
use shoal_session::tls::{Server, Session};

use crate::identity::Identity;
use crate::peer::{Client, transfer, trusting};

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

pub(crate) struct Forger {
    version: ProtocolVersion,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Forger {
    /// Creates a session and the forger at its other end.
    pub(crate) fn connected(
        server: &Server,
        identity: &Identity,
        version: &'static SupportedProtocolVersion,
    ) -> (Session, Self) {
        let mut config = trusting(&[&identity.der], version);
        config.enable_secret_extraction = true;
        let mut session = Session::new(server);
        let mut client = Client::new(&Arc::new(config), "tracker.example");
        transfer(&mut session, &mut client);
        let (sequence, secrets) = client.0.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            panic!("another cipher than the server chooses");
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
        let iv = iv.as_ref().try_into().unwrap();
        (session, Self { version: version.version, key, iv, sequence })
    }

    /// Encrypts a record of any type with any content.
    pub(crate) fn record(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        let sequence = self.sequence.to_be_bytes();
        self.sequence += 1;
        match self.version {
            ProtocolVersion::TLSv1_3 => self.record_1_3(sequence, content_type, content),
            _ => self.record_1_2(sequence, content_type, content),
        }
    }

    /// RFC 8446, 5.2: the content type goes inside, the nonce is mixed from the sequence number.
    fn record_1_3(&self, sequence: [u8; 8], content_type: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(sequence).for_each(|(byte, of_sequence)| *byte ^= of_sequence);
        let mut sealed = [content, &[content_type]].concat();
        let header = header(APPLICATION_DATA, sealed.len() + 16);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }

    /// RFC 5288, 3: half of the nonce goes with the record. RFC 5246, 6.2.3.3: what is authenticated.
    fn record_1_2(&self, sequence: [u8; 8], content_type: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        nonce[4..].copy_from_slice(&sequence);
        let authenticated = [&sequence[..], &header(content_type, content.len())].concat();
        let mut sealed = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(authenticated), &mut sealed).unwrap();
        [&header(content_type, 8 + sealed.len())[..], &sequence, &sealed].concat()
    }
}

/// Encodes the header of a record.
pub(crate) fn header(content_type: u8, length: usize) -> [u8; 5] {
    let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
    [content_type, 3, 3, high, low]
}
