//! The requests of attacks over HTTP.

pub(crate) use shoal_testkit::client::http::{Client as HttpClient, Response, get, get_and_close, percent};

/// Returns the request target of a leecher's announce.
pub(crate) fn announce_target(info_hash: &[u8; 20], port: u16, num_want: u32) -> String {
    let more = format!("&numwant={num_want}&compact=1");
    shoal_testkit::client::http::announce_target(*info_hash, port, &more)
}

/// Encodes a request to the control listener, with these header fields, each of which ends with CRLF, and a body of JSON if it
/// has one.
pub(crate) fn control_request(method: &str, target: &str, fields: &str, body: Option<&[u8]>) -> Vec<u8> {
    let body_fields = body.map_or(String::new(), |body| {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    });
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}{body_fields}\r\n");
    [head.as_bytes(), body.unwrap_or_default()].concat()
}
