//! The service: as little of HTTP as a client notices.

use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};

/// The request: an announce as common clients send it.
pub(crate) const REQUEST: &[u8] = b"GET /announce?info_hash=%124Vx%9A%BC%DE%F1%23Eg%89%AB%CD%EF%124Vx%9A&\
    peer_id=-TR4060-0123456789ab&port=51413&uploaded=0&downloaded=0&left=1000000&numwant=80&key=5a3c71f2&\
    compact=1&supportcrypto=1&event=started HTTP/1.1\r\nHost: tracker.example:6969\r\n\
    User-Agent: Transmission/4.0.6\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n";

/// The response: a head, and a body of 300 bytes, which is about 50 peers.
pub(crate) const RESPONSE: &[u8] = &{
    const HEAD: &[u8; 57] = b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\nServer: respond\r\n\r\n";
    let mut response = [b'p'; HEAD.len() + 300];
    let (head, _) = response.split_at_mut(HEAD.len());
    head.copy_from_slice(HEAD);
    response
};

/// Answers each request in the same way.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) keeps_alive: bool,
    pub(crate) responses: u64,
}

impl StreamService for Responder {
    type Session = ();

    fn open(&mut self, _: &Remote, _: Handle) {}

    fn receive(&mut self, (): &mut (), input: &mut [u8], output: &mut Vec<u8>) -> Next {
        // The requests of this load arrive whole.
        if !input.ends_with(b"\r\n\r\n") {
            return Next::Busy;
        }
        self.responses += 1;
        output.extend_from_slice(RESPONSE);
        if self.keeps_alive { Next::Idle } else { Next::Close }
    }

    fn expire(&mut self, (): &mut (), _: &mut Vec<u8>) {}

    fn refuse(&mut self, _: &Remote, _: &mut Vec<u8>) {}

    fn close(&mut self, (): ()) {}

    fn is_limited(&self, _: &Remote) -> bool {
        true
    }
}
